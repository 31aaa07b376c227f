"""What a worker is told when it starts."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Protocol

from .._core.messages import frozen
from .._transport.status_board import StatusLine
from ..policies import Policy, raising
from .private_file_offsets import NOTHING, Held

RAISE = raising()


@frozen
class Job:
    """The work itself: the same for every seat of a loader."""

    dataset: Any
    streams: bool  # an iterable dataset
    auto_collation: bool
    collate_fn: Callable[..., Any]
    drop_last: bool
    num_workers: int
    base_seed: int
    init_fn: Callable[[int], None] | None
    policy: Policy = RAISE
    quarantine: frozenset[Any] = frozenset()  # samples that are not to be loaded
    look_s: float = 1.0  # how often a worker looks whether it stands still
    stays: bool = False  # workers stay for the next epoch
    batch_size: int = 1  # of a stream
    torch_draws: bool = False  # generators are seeded once in a worker's life, as in torch
    # The dataset is a copy of its own, which the user asked for (spawn, forkserver): it goes before
    # its worker does, so that its finalizers run, as in torch since 2.14.
    is_released: bool = False


@frozen
class Resume:
    """Where a life takes up the stream of another, in one epoch."""

    past: int  # batches that it is not to bring again
    batches: int = 0  # that are behind the state
    state: bytes = b""  # none: from the beginning
    over: bool = False  # it has met its end after these batches
    asked: int = 0  # samples it was asked for, up to the state
    # Fingerprints of batches that were given, by their numbers: they must come again.
    known: tuple[tuple[int, int], ...] = ()


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
        """Give the job, and what it holds. Raises whatever that code raises."""


@frozen
class WorkerSpec:
    """One life: which seat it takes and when it begins."""

    job: Job
    seat: int
    life: int
    brief: EpochBrief  # of the epoch it begins with
    status: StatusLine
    ends_with: int  # the pid of a process it must not outlive
    by_kernel: bool = True  # its parent thread lives as long as that process (see `guard`)
    prepared: bool = False  # its parent was prepared for it
    forgets: tuple[int, ...] = ()  # signals that its parent has handlers for
    trace: int | None = None  # a descriptor of its own, for its stack
    held: Held = NOTHING  # what its dataset has inherited
    positions: dict[int, int] | None = None  # in inherited files, if its parent moves them
    sealed: Sealed | None = None  # the job, if it is not opened yet
    clean_since: str = ""  # why it comes from a clean process, if it does
