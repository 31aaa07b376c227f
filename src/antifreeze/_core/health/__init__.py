"""Watch over workers: who is stuck, who grows, and what the core does about it."""
