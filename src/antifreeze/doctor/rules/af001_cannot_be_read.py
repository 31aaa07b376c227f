"""A file that is no Python, or cannot be read at all."""

from __future__ import annotations

from collections.abc import Iterator

from ..source.view import View
from .rule import CERTAIN, CRASH, Hit, Rule


def find(view: View) -> Iterator[Hit]:
    """Find nothing: who reads the file reports it (`check/checker.py`)."""
    return iter(())


RULE = Rule(
    code="AF001",
    name="cannot-be-read",
    severity=CRASH,
    confidence=CERTAIN,
    find=find,
)
