"""The workers of a simulated epoch, and what can be seen of them."""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field
from enum import Enum

from antifreeze._core import commands as do
from antifreeze._core.health.stall_detection import Activity, Inherited, StackLine
from antifreeze._core.health.worker_phases import OURS
from antifreeze._core.tickets import Errand

LINE = (StackLine("data.py", 7, "__getitem__"),)
STUCK = Activity(cpu_s=3.0, stack=LINE, shared_lock=0x7000)
STOPPED = Activity(cpu_s=3.0, stopped=True)
LOCKED = Activity(cpu_s=3.0, deadlock="a b")
INHERITED = Activity(cpu_s=3.0, stack=LINE, deadlock="a b", inherited=Inherited("waits for a lock"))


class Mood(Enum):
    """What a worker is like, whatever the supervisor believes."""

    WELL = "well"
    MOVING = "slow but moving"
    STUCK = "stuck"
    SPINNING = "spinning"
    STOPPED = "stopped"
    LOCKED = "deadlocked"
    INHERITED = "deadlocked by what it inherited"


@dataclass(slots=True, eq=False)
class Worker:
    """One life, as it really is."""

    seat: int
    life: int
    epoch: int  # it was started for
    up: bool = False
    gone: bool = False
    end_told: bool = False
    leaving: bool = False  # it was told to
    killed: do.Force | None = None
    mood: Mood = Mood.WELL
    doomed: bool = False  # there is a reason to end it
    unfit: bool = False  # it has said that it cannot live with its fork
    cured_by_resuming: bool = False
    brings_late: bool = False  # it sends its parcels when it is killed
    immortal: bool = False  # it sits in the kernel
    preparing: bool = False  # for an epoch
    step: int = OURS
    busy: tuple[Errand, ...] = ()  # what it loads
    inbox: deque[Errand | do.BeginEpoch] = field(default_factory=deque)
    own_bytes: int = 100  # of its memory
    given: int = 0  # batches of its stream, in this epoch; by whoever it replaces, too
    began: int = -1  # the latest epoch of which it has told that it begins it

    @property
    def key(self) -> tuple[int, int]:
        return self.seat, self.life

    @property
    def counts(self) -> bool:
        """Say whether what is told of it may still be delivered."""
        return not self.leaving and self.killed is None and not self.end_told

    @property
    def idle(self) -> bool:
        """Say whether it may take up what it was sent."""
        return (
            self.up
            and not self.busy
            and not self.preparing
            and self.mood is Mood.WELL
            and not self.leaving
            and self.killed is None
        )

    def held(self) -> list[Errand]:
        return [*self.busy, *(each for each in self.inbox if isinstance(each, Errand))]

    def activity(self, now: float) -> Activity:
        """Give what a close look shows."""
        match self.mood:
            case Mood.STUCK:
                return STUCK
            case Mood.SPINNING:
                return Activity(cpu_s=now, stack=LINE)
            case Mood.STOPPED:
                return STOPPED
            case Mood.LOCKED:
                return LOCKED
            case Mood.INHERITED:
                return INHERITED
            case _:
                return Activity(cpu_s=3.0, io_bytes=int(now * 1000))
