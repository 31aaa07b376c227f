"""Reproduce a dataset and its program's state in a process that inherited nothing."""
