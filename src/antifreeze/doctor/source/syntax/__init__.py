"""One file by itself: its tree, its scopes, and what a name stands for in it."""
