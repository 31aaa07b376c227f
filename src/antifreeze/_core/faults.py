"""What went wrong, as data."""

from __future__ import annotations

from collections import deque
from enum import Enum
from typing import Any

from .frozen_values import frozen
from .health.stall_detection import StackLine, Stall
from .health.worker_phases import OURS, SAMPLE, index_at
from .limits import LIMITS
from .tickets import Ticket


class FaultKind(Enum):
    """Name the ways a batch or a worker can fail."""

    EXCEPTION = "exception"  # the user's code raised
    SAMPLER = "sampler"  # the sampler raised in the main process
    CRASH = "crash"  # a life ended while it held the ticket
    HANG = "hang"  # a life kept the ticket longer than it may
    STREAM_LOST = "stream lost"  # a life ended in the middle of an iterable's stream
    REFUSED = "refused"  # the machine gave no process for a life
    NEVER_STARTED = "never started"  # no life of the seat came up
    BUDGET_SPENT = "budget spent"  # too many lives in a row brought nothing
    TIMEOUT = "timeout"  # the loop waited longer than the user's `timeout`


@frozen
class Ending:
    """How a life ended: an exit code, or the number of the signal that killed it."""

    exit_code: int | None = None
    signal: int | None = None
    words: str = ""  # what the backend knows beyond the numbers, e.g. a start-up traceback
    refused: bool = False  # there was no life at all: the machine gave no process for it
    told: bool = False  # the user knows why, in other words
    out_of_memory: bool = False  # the kernel ended it for want of memory
    called_exit: bool = False  # the user's code raised SystemExit, at the innermost line of `stack`
    step: int = OURS  # what it was busy with
    stack: tuple[StackLine, ...] = ()  # of its main thread, innermost first, if it left one


@frozen
class Fault:
    """One thing that went wrong, with all the core knows about it."""

    kind: FaultKind
    seat: int | None = None
    life: int | None = None
    ticket: Ticket | None = None
    ending: Ending | None = None
    delivered: int = 0  # batches the loop had received when it happened
    seconds: float = 0.0  # how long the wait or the work had lasted
    stall: Stall | None = None  # what was seen of a life that hung
    verdict: str = ""  # about its ticket, if one was needed

    @property
    def step(self) -> int:
        """Say what the life was busy with."""
        if self.stall is not None:
            return self.stall.step
        return OURS if self.ending is None else self.ending.step

    @property
    def place(self) -> int | None:
        """Give the place of the sample in its batch, if it was one of several."""
        indices: Any = None if self.ticket is None else self.ticket.indices
        return None if index_at(self.step, indices) is None else self.step - SAMPLE


class FaultLog:
    """The latest faults, and the count of all."""

    def __init__(self, kept: int = LIMITS.records.supervisor_faults) -> None:
        self.latest: deque[Fault] = deque(maxlen=kept)
        self.seen = 0

    def note(self, fault: Fault) -> None:
        self.latest.append(fault)
        self.seen += 1
