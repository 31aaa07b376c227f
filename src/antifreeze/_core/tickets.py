"""What is to be loaded: tickets, and how far a run has come."""

from __future__ import annotations

from typing import Any

from .frozen_values import message
from .slab_leases import Lease


@message
class Progress:
    """Say how far a run has come: all that a later run needs to go on from here."""

    epoch: int
    delivered: int  # positions of this epoch the loop is past: received, or raised as a fault
    seed_base: int


@message
class Ticket:
    """One batch of indices to load, at one position of the epoch.

    A ticket that is dealt again gets a new number, so a late parcel of an earlier attempt is
    recognised by its number alone and can never be delivered twice.
    """

    number: int
    epoch: int
    position: int
    indices: Any  # what the sampler gave; opaque here
    blamed: tuple[int, ...] = ()  # the steps of it in which lives were lost; see `worker_phases`
    spared: tuple[int, ...] = ()  # places of samples that count as failed, as often as they did
    seat: int | None = None  # whose stream it is part of; None: anybody's

    @property
    def attempt(self) -> int:
        return 1 + len(self.blamed)


@message
class Errand:
    """A ticket in the hands of a life, with the right to the slab its parcel may need."""

    ticket: Ticket
    lease: Lease
    seat: int
    life: int
