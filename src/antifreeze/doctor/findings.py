"""What the doctor reports."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum


class Confidence(Enum):
    """How sure we are. What is certain must be right: a wrong cause is worse than none."""

    CERTAIN = "certain"  # nothing else looks like this
    LIKELY = "likely"
    POSSIBLE = "possible"

    @property
    def rank(self) -> int:
        return list(Confidence).index(self)


@dataclass(frozen=True, slots=True)
class Finding:
    """One cause, for one program."""

    rule: str  # the name of the cause, and of its page
    confidence: Confidence
    sentence: str
    evidence: tuple[str, ...] = ()
    get_out: tuple[str, ...] = ()  # commands or words; each says whether work is lost
    prevent: tuple[str, ...] = ()
    pids: tuple[int, ...] = ()  # whom it is about
    harmless: bool = False  # nothing is stuck: the program does what it should
    general: bool = False  # how it hangs; who knows why, as surely, is heard first
