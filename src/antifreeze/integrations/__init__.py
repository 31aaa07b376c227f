"""Adapters at the edge: our loader in programs and libraries that know torch's only."""
