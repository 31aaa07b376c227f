"""Load samples and batches: what runs in workers and, without workers, in the main process."""
