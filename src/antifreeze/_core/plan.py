"""What the supervisor is asked to do, and every bound it keeps."""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import Enum

from .reorder import Order


class Source(Enum):
    """Where the content of a batch comes from."""

    INDICES = "indices"  # a map-style dataset: any seat can load any ticket, again if need be
    STREAMS = "streams"  # an iterable dataset: each seat has a stream of its own


class Drawing(Enum):
    """When the sampler is asked."""

    AHEAD = "ahead"  # as soon as the window has room
    ON_DEMAND = "on demand"  # only while the loop waits (no workers: nothing could run ahead)


class Tenure(Enum):
    """How long lives stay."""

    EPOCH = "epoch"
    LOADER = "loader"  # persistent workers


@dataclass(frozen=True, slots=True)
class Limits:
    """Every bound has a name, a default and a reason. Seconds and counts."""

    # A ticket whose worker dies is tried once more: an out-of-memory kill or a cosmic ray does
    # not come back, a poisonous sample does, and a third try would only cost another worker.
    attempts: int = 2
    # Lives of a seat, in a row, that end before they have begun an epoch. Twice can be bad luck.
    failed_starts: int = 3
    # Lives of a seat, in a row, that bring no batch. Stops a restart loop that makes no progress.
    barren_lives: int = 8
    # A forked worker is up in milliseconds; a spawned one imports the whole program first.
    start_s: float = 120.0
    # A process that ends closes its channel a moment before its end can be seen.
    silent_s: float = 1.0
    # How long a life may work on one ticket. None: as long as it likes.
    ticket_s: float | None = None
    # Rest after the second barren life in a row; doubles up to `rest_max_s`.
    rest_s: float = 0.05
    rest_max_s: float = 2.0
    # A busy worker is not waited for: leaving a loop early takes less than half a second in all.
    stop_s: float = 0.25
    # An idle one leaves in a few milliseconds by itself; on a crowded machine it may take a while.
    stop_idle_s: float = 5.0
    terminate_s: float = 0.1
    # SIGKILL needs 130 ms to take 4 GiB apart; what still lives then sits in the kernel.
    kill_s: float = 5.0


@dataclass(frozen=True, slots=True)
class Plan:
    """One loader's wishes, fixed for its whole run."""

    seats: int
    window: int  # tickets drawn and not yet delivered, at most
    order: Order = Order.STRICT
    source: Source = Source.INDICES
    drawing: Drawing = Drawing.AHEAD
    tenure: Tenure = Tenure.EPOCH
    timeout_s: float = 0.0  # the user's `timeout` for one batch; 0 means none
    limits: Limits = field(default_factory=Limits)

    def __post_init__(self) -> None:
        if self.seats < 1 or self.window < 1:
            raise ValueError(f"a plan needs a seat and a window, not {self.seats}, {self.window}")
        if self.drawing is Drawing.ON_DEMAND and self.window != 1:
            raise ValueError(f"on demand one ticket is drawn at a time, not {self.window}")
