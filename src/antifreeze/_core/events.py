"""What happened: everything the supervisor can be told, in the past tense."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from typing import Any

from .faults import Ending


class Outcome(Enum):
    """How the work on a ticket came out."""

    LOADED = "loaded"
    FAILED = "failed"  # the user's code raised; the parcel holds the exception
    ENDED = "ended"  # the stream of an iterable dataset is over


@dataclass(frozen=True, slots=True)
class EpochAsked:
    """The loop began an epoch."""

    epoch: int
    seed_base: int


@dataclass(frozen=True, slots=True)
class LoopAsked:
    """The loop called `next` and is waiting."""


@dataclass(frozen=True, slots=True)
class TicketDrawn:
    """The sampler gave the indices of one more batch."""

    indices: Any


@dataclass(frozen=True, slots=True)
class SamplerEnded:
    """The sampler has no more batches."""


@dataclass(frozen=True, slots=True)
class SamplerFailed:
    """The sampler raised; the error belongs at the position it was asked for."""


@dataclass(frozen=True, slots=True)
class LifeReady:
    """A life came up and listens."""

    seat: int
    life: int


@dataclass(frozen=True, slots=True)
class EpochBegun:
    """A life has dropped what it held of earlier epochs; nothing of them follows."""

    seat: int
    life: int
    epoch: int


@dataclass(frozen=True, slots=True)
class ParcelArrived:
    """A life finished a ticket."""

    seat: int
    life: int
    number: int
    outcome: Outcome


@dataclass(frozen=True, slots=True)
class LifeEnded:
    """A life is gone, for whatever reason; nothing of it follows."""

    seat: int
    life: int
    ending: Ending


@dataclass(frozen=True, slots=True)
class ClockRang:
    """The time asked for by `next_wakeup` has come."""


@dataclass(frozen=True, slots=True)
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
    | ClockRang
    | CloseAsked
)
