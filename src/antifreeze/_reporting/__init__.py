"""What people get to read."""
