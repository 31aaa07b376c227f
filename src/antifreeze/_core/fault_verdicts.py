"""What the rules decide about a ticket whose life did not bring it: one table.

Everything else needs no rule: an exception, a lost stream and the loop's own timeout are raised in
their turn; a seat that gets no further life is lost.
"""

from __future__ import annotations

from enum import Enum

from .faults import FaultKind


class Verdict(Enum):
    RETRY = "retry"  # deal the ticket again
    SPARE = "spare"  # deal it again without the sample that did it: the policy says what instead
    RAISE = "raise"  # raise it in the loop, at the ticket's turn; the rest of the epoch goes on


# (what happened to a ticket, has it an attempt left, can its sample be spared) -> verdict
VERDICTS: dict[tuple[FaultKind, bool, bool], Verdict] = {
    (FaultKind.CRASH, True, True): Verdict.RETRY,
    (FaultKind.CRASH, True, False): Verdict.RETRY,
    (FaultKind.CRASH, False, True): Verdict.SPARE,  # quarantined: it ended a worker twice
    (FaultKind.CRASH, False, False): Verdict.RAISE,
    (FaultKind.HANG, True, True): Verdict.RETRY,
    (FaultKind.HANG, True, False): Verdict.RETRY,
    (FaultKind.HANG, False, True): Verdict.SPARE,
    (FaultKind.HANG, False, False): Verdict.RAISE,
}


def judge(kind: FaultKind, *, left: bool, spares: bool) -> Verdict:
    return VERDICTS[kind, left, spares]
