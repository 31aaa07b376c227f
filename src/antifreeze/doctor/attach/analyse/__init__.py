"""What the facts of a case mean. Pure."""
