"""A file that is no Python, or cannot be read at all."""

from __future__ import annotations

from collections.abc import Iterator

from ..source.view import View
from .base import CERTAIN, CRASH, Hit, Rule


def find(view: View) -> Iterator[Hit]:
    """Find nothing: who reads the file reports it (`check/looking.py`)."""
    return iter(())


RULE = Rule(
    code="AF001",
    name="cannot-be-read",
    severity=CRASH,
    confidence=CERTAIN,
    title="A file cannot be read as Python",
    what="A file with a syntax error, a broken notebook, or one that cannot be opened.",
    why="It cannot be run, and nothing else in it was looked at.",
    instead="Mend it, or leave it out with `exclude`.",
    not_flagged="""
    What is too large for us, and syntax that the Python which runs antifreeze does not know where
    `requires-python` asks for a newer one. Both are told as not looked at: exit code 2.
    """,
    bad="""
def train(:
    pass
""",
    good="""
def train():
    pass
""",
    find=find,
)
