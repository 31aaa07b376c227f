"""What happened: everything the supervisor can be told, in the past tense."""

from __future__ import annotations

from enum import Enum
from typing import Any

from .faults import Ending
from .messages import message


class Outcome(Enum):
    """How the work on a ticket came out."""

    LOADED = "loaded"
    FAILED = "failed"  # the user's code raised; the parcel holds the exception
    ENDED = "ended"  # the stream of an iterable dataset is over


@message
class EpochAsked:
    """The loop began an epoch."""

    epoch: int
    seed_base: int


@message
class LoopAsked:
    """The loop called `next` and is waiting."""


@message
class TicketDrawn:
    """The sampler gave the indices of one more batch."""

    indices: Any


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
class ParcelArrived:
    """A life finished a ticket."""

    seat: int
    life: int
    number: int
    outcome: Outcome


@message
class LifeEnded:
    """A life is gone, for whatever reason; nothing of it follows."""

    seat: int
    life: int
    ending: Ending


@message
class LifeSilent:
    """A life closed its channel. Usually its end follows at once; if not, it is of no use."""

    seat: int
    life: int


@message
class ClockRang:
    """The time asked for by `next_wakeup` has come."""


@message
class CloseAsked:
    """The loop is done with this loader for good."""


Event = (
    EpochAsked
    | LoopAsked
    | TicketDrawn
    | SamplerEnded
    | SamplerFailed
    | LifeReady
    | EpochBegun
    | ParcelArrived
    | LifeEnded
    | LifeSilent
    | ClockRang
    | CloseAsked
)
