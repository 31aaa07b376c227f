"""A comment that allows what does not exist, or what nobody forbids."""

from __future__ import annotations

from collections.abc import Iterator

from ..source.view import View
from .base import CERTAIN, SLOW, Hit, Rule


def find(view: View) -> Iterator[Hit]:
    """Find nothing: who reads the comments reports it (`check/looking.py`)."""
    return iter(())


RULE = Rule(
    code="AF002",
    name="allow-without-effect",
    severity=SLOW,
    confidence=CERTAIN,
    title="A comment allows nothing",
    what="""
    `# antifreeze: allow[...]` with a name that no rule has; with `--strict` also one that silences
    nothing any more.
    """,
    why="A misspelt name silences nothing, and a stale one hides the next mistake on that line.",
    instead="Write the name as `antifreeze check` prints it, or take the comment away.",
    bad="""
import torch  # antifreeze: allow[no-such-rule]
""",
    good="""
import torch
""",
    find=find,
)
