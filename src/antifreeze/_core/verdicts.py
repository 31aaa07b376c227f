"""What the rules decide about a fault: one table."""

from __future__ import annotations

from enum import Enum

from .faults import FaultKind


class Verdict(Enum):
    RETRY = "retry"  # deal the ticket again
    RAISE = "raise"  # raise it in the loop, at the ticket's turn; the run may go on
    STOP = "stop"  # raise it in the loop at once; the iterator is over


# (what happened, has the ticket an attempt left) -> verdict
VERDICTS: dict[tuple[FaultKind, bool], Verdict] = {
    (FaultKind.EXCEPTION, True): Verdict.RAISE,  # a dataset's exception is not retried unasked
    (FaultKind.EXCEPTION, False): Verdict.RAISE,
    (FaultKind.SAMPLER, True): Verdict.RAISE,
    (FaultKind.SAMPLER, False): Verdict.RAISE,
    (FaultKind.CRASH, True): Verdict.RETRY,
    (FaultKind.CRASH, False): Verdict.RAISE,  # quarantined: it ended a worker twice
    (FaultKind.HANG, True): Verdict.RETRY,
    (FaultKind.HANG, False): Verdict.RAISE,
    (FaultKind.STREAM_LOST, True): Verdict.RAISE,  # a stream cannot be dealt again
    (FaultKind.STREAM_LOST, False): Verdict.RAISE,
    (FaultKind.TIMEOUT, True): Verdict.RAISE,
    (FaultKind.TIMEOUT, False): Verdict.RAISE,
    (FaultKind.NEVER_STARTED, True): Verdict.STOP,
    (FaultKind.NEVER_STARTED, False): Verdict.STOP,
    (FaultKind.BUDGET_SPENT, True): Verdict.STOP,
    (FaultKind.BUDGET_SPENT, False): Verdict.STOP,
}


def judge(kind: FaultKind, attempt: int, attempts: int) -> Verdict:
    return VERDICTS[kind, attempt < attempts]
