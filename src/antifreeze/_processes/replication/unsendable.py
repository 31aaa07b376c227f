"""The refusal to send what would arrive as something else."""

from __future__ import annotations


class Unsendable(Exception):
    """This would arrive as something else."""
