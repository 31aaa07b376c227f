"""What happened: everything the supervisor can be told, in the past tense."""

from __future__ import annotations

from enum import Enum
from typing import Any

from .batch_timings import Timings
from .faults import Ending
from .frozen_values import message
from .health.memory_growth import Room
from .health.stall_detection import Activity, Sight
from .slab_leases import LeaseKey


class Outcome(Enum):
    """How the work on a ticket came out."""

    LOADED = "loaded"
    FAILED = "failed"  # the user's code raised; the parcel holds the exception
    ENDED = "ended"  # the stream of an iterable dataset is over
    EMPTY = "empty"  # by its policy, no sample is left of it


@message
class EpochAsked:
    """The loop began an epoch."""

    epoch: int
    seed_base: int
    free_draws: int | None = None  # batches that may be drawn ahead of the window; None: all


@message
class LoopAsked:
    """The loop called `next` and is waiting."""


@message
class ForkUnfit:
    """A forked life needs what a fork cannot have, and others could be made without one."""

    seat: int
    life: int
    words: str


@message
class LoopLeft:
    """The loop is busy with its own work, and somebody else tells what happens meanwhile.

    Until it asks again nothing is started and nothing is drawn: both need its own thread.
    """

    for_good: bool = False  # an error has ended it, as it seems: its workers may go


@message
class TicketsDrawn:
    """The sampler gave the indices of further batches: at least one, at most as many as asked."""

    indices: tuple[Any, ...]
    took_s: float = 0.0


@message
class SamplerEnded:
    """The sampler has no more batches."""


@message
class SamplerFailed:
    """The sampler raised; the error belongs at the position it was asked for."""


@message
class LifeReady:
    """A life came up and listens."""

    seat: int
    life: int


@message
class EpochBegun:
    """A life is prepared for an epoch; nothing of earlier ones follows.

    The first time, the user's own preparations are behind it: init function, `iter(dataset)`.
    """

    seat: int
    life: int
    epoch: int


@message
class ParcelsArrived:
    """A life finished tickets, in this order, all with the same outcome."""

    seat: int
    life: int
    numbers: tuple[int, ...]
    outcome: Outcome
    work_s: float | None = None  # it took to load all of them, where that is known
    in_slab: bool = False  # each lies in the slab of its lease
    slab_bytes: int = 0  # of all the slabs they came in
    timings: Timings | None = None  # of all of them together


@message
class LeasesReturned:
    """The loop let go of the last view of these slabs."""

    leases: tuple[LeaseKey, ...]


@message
class ProgramForked:
    """This process forked: the child sees, and may keep, all that the loop keeps now."""


@message
class LifeEnded:
    """A life is gone, for whatever reason; nothing of it follows."""

    seat: int
    life: int
    ending: Ending
    # Number of the ticket it worked on; 0: it was idle; None: it left no word of it.
    working_on: int | None = None


@message
class LifeSilent:
    """A life closed its channel. Usually its end follows at once; if not, it is of no use."""

    seat: int
    life: int


@message
class StreamMarked:
    """The worker of a seat told whether its stream can be taken up again where it is."""

    seat: int
    can_resume: bool


@message
class LivesSeen:
    """The answer to `LookAround`; or somebody looked by himself, while the loop was away."""

    sights: tuple[Sight, ...]
    room: Room | None = None


@message
class LifeExamined:
    """The answer to `ExamineLife`."""

    seat: int
    life: int
    activity: Activity | None  # None: nothing could be seen


@message
class ClockRang:
    """The time asked for by `next_wakeup` has come."""


@message
class CloseAsked:
    """The loop is done with this loader for good."""


Event = (
    EpochAsked
    | LoopAsked
    | LoopLeft
    | TicketsDrawn
    | SamplerEnded
    | SamplerFailed
    | LifeReady
    | EpochBegun
    | ParcelsArrived
    | LeasesReturned
    | ProgramForked
    | LifeEnded
    | LifeSilent
    | ForkUnfit
    | StreamMarked
    | LivesSeen
    | LifeExamined
    | ClockRang
    | CloseAsked
)
