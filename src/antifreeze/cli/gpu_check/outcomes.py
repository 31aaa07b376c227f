"""What came of a check, as data that crosses from its process to the command."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from typing import Any


class Verdict(Enum):
    """Whether a check has shown what it was made for."""

    OK = "ok"
    SKIPPED = "skipped"  # it cannot be done on this machine
    FAILED = "failed"


@dataclass(frozen=True, slots=True)
class Outcome:
    """The result of one check."""

    verdict: Verdict
    summary: str  # a few words: the cell of the table
    detail: str = ""  # what a maintainer wants to know beyond that

    def as_data(self) -> dict[str, str]:
        return {"verdict": self.verdict.value, "summary": self.summary, "detail": self.detail}

    @classmethod
    def of_data(cls, data: dict[str, Any]) -> Outcome:
        return cls(Verdict(data["verdict"]), str(data["summary"]), str(data["detail"]))


def ok(summary: str = "ok", detail: str = "") -> Outcome:
    return Outcome(Verdict.OK, summary, detail)


def skipped(why: str) -> Outcome:
    return Outcome(Verdict.SKIPPED, f"skipped: {why}")


def failed(summary: str, detail: str = "") -> Outcome:
    return Outcome(Verdict.FAILED, summary, detail)
