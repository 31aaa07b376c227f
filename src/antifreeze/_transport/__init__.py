"""Bytes, no decisions: how batches, exceptions and messages cross a process boundary."""
