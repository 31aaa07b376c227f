"""What rules ask of a view. One module a subject; a rule imports what it needs."""
