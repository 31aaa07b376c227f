"""What is to be loaded, and how; where a stream is taken up again."""

from __future__ import annotations

import enum
from collections.abc import Callable, Mapping
from dataclasses import field
from typing import Any

from .._core.frozen_values import frozen
from ..policies import Policy, raising

RAISE = raising()


class AtEnd(enum.Enum):
    """What a worker finalizes before it leaves, where the user asked for workers with a dataset of
    their own (spawn, forkserver)."""

    NOTHING = "nothing"
    WHAT_IT_MADE = "what it made"  # what it has given to `weakref.finalize`
    DATASET = "dataset"  # it is released


@frozen
class Job:
    """The work itself: the same for every worker of a loader."""

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
    at_end: AtEnd = AtEnd.NOTHING
    # Signal handlers of the program that run in workers, by number (see `_worker.signal_handlers`).
    handlers: Mapping[int, Any] = field(default_factory=dict)


@frozen
class Resume:
    """Where a worker takes up the stream of another, in one epoch."""

    past: int  # batches that it is not to bring again
    batches: int = 0  # that are behind the state
    state: bytes = b""  # none: from the beginning
    over: bool = False  # it has met its end after these batches
    asked: int = 0  # samples it was asked for, up to the state
    # Fingerprints of batches that were given, by their numbers: they must come again.
    known: tuple[tuple[int, int], ...] = ()
