"""What all states and cues have in common."""

from __future__ import annotations

from enum import Enum


class State(Enum):
    """A member of a state machine. Members are single objects, so identity is their hash.

    (Enum hashes the member's name, in Python: a third of the cost of a transition.)
    """

    __hash__ = object.__hash__
