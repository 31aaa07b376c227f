"""A comment that allows what does not exist, or what nobody forbids."""

from __future__ import annotations

from collections.abc import Iterator

from ..source.view import View
from .rule import CERTAIN, SLOW, Hit, Rule


def find(view: View) -> Iterator[Hit]:
    """Find nothing: who reads the comments reports it (`check/file_check.py`)."""
    return iter(())


RULE = Rule(
    code="AF002",
    name="allow-without-effect",
    severity=SLOW,
    confidence=CERTAIN,
    find=find,
)
