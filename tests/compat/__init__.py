"""Other versions of torch: what is missing there, what is new, what differs."""
