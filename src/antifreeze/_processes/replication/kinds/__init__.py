"""How single kinds of things are sent to a clean process."""
