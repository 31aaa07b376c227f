"""`antifreeze check`: rules over files, and what is told of it."""
