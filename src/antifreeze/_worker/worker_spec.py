"""What a worker is told when it starts, and when an epoch begins."""

from __future__ import annotations

from typing import Any, Protocol

from .._core.frozen_values import frozen
from .._loading.job import Job, Resume
from .._transport.status_board import StatusLine
from .private_file_offsets import NOTHING, Held


@frozen
class EpochBrief:
    """What lives must know about an epoch."""

    epoch: int
    seed: int = 0  # of its samples' randomness
    shared_seed: int | None = None  # for data pipes
    resume: Resume | None = None  # for a stream that broke off
    follows: bool = False  # the brief itself comes by the worker's channel: it is long
    carried: bytes = b""  # what the stream of a worker that was replaced began this epoch with
    carried_over: bool = False  # that had met the end of the epoch before
    left: tuple[Resume, ...] = ()  # earlier epochs, which are to be left as that worker left them
    unknown: bool = False  # nobody knows what it began this epoch with
    heir: int = 0  # workers before this one that were lost after they had begun an epoch


class Sealed(Protocol):
    """A job that each life opens for itself: the user's code runs meanwhile."""

    terms: Any  # of this epoch (see `Terms`)
    took: tuple[tuple[str, ...], float]  # to open it: libraries, seconds of processor time

    @property
    def look_s(self) -> float: ...

    def open(self) -> tuple[Job, Held]:
        """Return the job, and what it holds. Raises whatever that code raises."""


@frozen
class WorkerSpec:
    """One life: which seat it takes and when it begins."""

    job: Job
    seat: int
    life: int
    brief: EpochBrief  # of the epoch it begins with
    status: StatusLine
    ends_with: int  # the pid of a process it must not outlive
    by_kernel: bool = True  # its parent thread lives as long as that process (see `parent_watch`)
    prepared: bool = False  # its parent was prepared for it
    forgets: tuple[int, ...] = ()  # signals that its parent has handlers of its own for
    trace: int | None = None  # a descriptor of its own, for its stack
    held: Held = NOTHING  # what its dataset has inherited
    positions: dict[int, int] | None = None  # in inherited files, if its parent moves them
    sealed: Sealed | None = None  # the job, if it is not opened yet
    clean_since: str = ""  # why it comes from a clean process, if it does
