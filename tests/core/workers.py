"""One life as the world sees it."""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field

from antifreeze._core import commands as do
from antifreeze._core.tickets import Errand, Ticket

from .slabs import LifeKey


@dataclass
class Worker:
    """One life as it really is, whatever the supervisor believes."""

    seat: int
    life: int
    first_epoch: int  # the one it was started for
    ready: bool = False
    stopping: bool = False  # was told to leave
    killed: do.Force | None = None
    stuck: bool = False  # sits in the kernel: does not die when it is killed
    inbox: deque[Errand | do.BeginEpoch] = field(default_factory=deque)
    ended_in: int = -1  # the last epoch in which its stream ended
    parcels: int = 0

    @property
    def key(self) -> LifeKey:
        return self.seat, self.life

    @property
    def counts(self) -> bool:
        """Say whether what it brings may still be delivered."""
        return not self.stopping and self.killed is None

    def tickets(self, epoch: int) -> list[Ticket]:
        """Give what it still has to load for an epoch, oldest first."""
        return [ticket for ticket in self.in_hand() if ticket.epoch == epoch]

    def in_hand(self) -> list[Ticket]:
        return [message.ticket for message in self.inbox if isinstance(message, Errand)]

    def take(self, count: int, place: int) -> list[Errand]:
        """Take the next errands from the inbox, up to the beginning of an epoch."""
        errands: list[Errand] = []
        while len(errands) < count and place < len(self.inbox):
            message = self.inbox[place]
            if isinstance(message, do.BeginEpoch):
                break
            del self.inbox[place]
            errands.append(message)
        return errands

    def works_for(self, epoch: int) -> bool:
        """Say whether what it is busy with right now is a ticket of this epoch."""
        return (
            self.ready
            and len(self.inbox) > 0
            and isinstance(self.inbox[0], Errand)
            and self.inbox[0].ticket.epoch == epoch
        )
