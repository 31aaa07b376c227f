"""`antifreeze check`: run the rules over files, and report what they find."""
