"""What the rules decide about a ticket whose life did not bring it: one table.

Everything else needs no rule: an exception, a lost stream and the loop's own timeout are raised in
their turn; a seat that gets no further life is lost.
"""

from __future__ import annotations

from enum import Enum

from .faults import FaultKind


class Verdict(Enum):
    RETRY = "retry"  # deal the ticket again
    RAISE = "raise"  # raise it in the loop, at the ticket's turn; the rest of the epoch goes on


# (what happened to a ticket, has it an attempt left) -> verdict
VERDICTS: dict[tuple[FaultKind, bool], Verdict] = {
    (FaultKind.CRASH, True): Verdict.RETRY,
    (FaultKind.CRASH, False): Verdict.RAISE,  # quarantined: it ended a worker twice
    (FaultKind.HANG, True): Verdict.RETRY,
    (FaultKind.HANG, False): Verdict.RAISE,
}


def judge(kind: FaultKind, attempt: int, attempts: int) -> Verdict:
    return VERDICTS[kind, attempt < attempts]
