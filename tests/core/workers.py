"""One life as the world sees it."""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field

from antifreeze._core import commands as do
from antifreeze._core.health.stall_detection import Activity, Pulse, Sight, StackLine
from antifreeze._core.health.worker_phases import OURS, SAMPLE
from antifreeze._core.tickets import Errand, Ticket

from .slabs import LifeKey

LINE = (StackLine("data.py", 7, "__getitem__"),)


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
    pulse: Pulse = Pulse.MOVING  # what a close look shows
    sample: int = 0  # of its batch, that it loads

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

    def sight(self) -> Sight:
        """Give what it says it does."""
        at_work = self.ready and bool(self.inbox) and isinstance(self.inbox[0], Errand)
        number = self.in_hand()[0].number if at_work else 0
        return Sight(self.seat, self.life, number, SAMPLE + self.sample if at_work else OURS)

    def activity(self, now: float) -> Activity | None:
        """Give what a close look shows; None: nothing."""
        match self.pulse:
            case Pulse.SLOW:
                return None
            case Pulse.MOVING:
                return Activity(io_bytes=int(now * 1000))
            case Pulse.SPINNING:
                return Activity(cpu_s=now, stack=LINE)
            case Pulse.STOPPED:
                return Activity(stopped=True)
            case Pulse.DEADLOCKED:
                return Activity(deadlock="a b")
            case Pulse.STUCK:
                return Activity(stack=LINE)

    def works_for(self, epoch: int) -> bool:
        """Say whether what it is busy with right now is a ticket of this epoch."""
        return (
            self.ready
            and len(self.inbox) > 0
            and isinstance(self.inbox[0], Errand)
            and self.inbox[0].ticket.epoch == epoch
        )
