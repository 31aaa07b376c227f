"""What to do: everything the supervisor can ask of the driver, in the imperative."""

from __future__ import annotations

from enum import Enum

from .faults import Fault
from .frozen_values import message
from .health.memory_growth import Growth
from .health.stall_detection import Stall
from .tickets import Errand, Ticket


class Force(Enum):
    """How hard to end a life."""

    TERMINATE = "terminate"
    KILL = "kill"


@message
class DrawTickets:
    """Ask the sampler for so many more batches; answer, once, with what it gave."""

    count: int


@message
class StartLife:
    """Bring up a worker in a seat; answer `LifeReady`, then `EpochBegun`; or `LifeEnded`."""

    seat: int
    life: int
    epoch: int
    past: int = 0  # batches of its stream that it is not to bring again
    # Batches that its seat was asked for in the epochs before, the latest first.
    before: tuple[int, ...] = ()
    heir: int = 0  # lives of its seat that may have drawn before it, where draws are torch's


@message
class BeginEpoch:
    """Tell a life that a new epoch begins; answer `EpochBegun`."""

    seat: int
    life: int
    epoch: int


@message
class SendTickets:
    """Hand tickets to a life, each with the lease its parcel may use."""

    seat: int
    life: int
    errands: tuple[Errand, ...]


@message
class StopLife:
    """Ask a life to leave when it is done with what it does."""

    seat: int
    life: int


@message
class KillLife:
    """End a life; answer `LifeEnded` when it is gone."""

    seat: int
    life: int
    force: Force
    doubted: bool = False  # it never got going: where it comes from may be to blame
    unfit: str = ""  # what it cannot live with, inherited: all lives must come from elsewhere


@message
class ExpectTurn:
    """Prepare for lives that come from a clean process: forked ones seem to be stuck."""


@message
class ReportLate:
    """Say that a life does not leave, although it has nothing to do; it will be ended."""

    seat: int
    life: int
    seconds: float  # since it was told to


@message
class LookAround:
    """See what all lives say they do; answer `LivesSeen`."""


@message
class ExamineLife:
    """Look at a life from outside, closely; answer `LifeExamined`."""

    seat: int
    life: int


@message
class ResumeLife:
    """Have a life go on that somebody has stopped."""

    seat: int
    life: int


@message
class ReportStall:
    """Say who keeps the loop waiting."""

    stall: Stall
    ticket: Ticket | None


@message
class ReportGrowth:
    """Have a life say what has grown in it, and tell the user."""

    growth: Growth


@message
class ReleaseLock:
    """Release a lock that all lives wait for and nobody holds: whoever did is gone."""

    lock: int  # where it is, in the memory of a life
    waiting: tuple[tuple[int, int], ...]  # seats and lives
    seat: int  # of the latest life that left work undone
    life: int
    alive: bool  # that one: a sample of it raised


@message
class AbandonLife:
    """Stop waiting for a life that cannot be killed; the kernel owns it now."""

    seat: int
    life: int


@message
class DropParcel:
    """Throw away a parcel that nobody may receive."""

    number: int


@message
class Deliver:
    """Give the loop these parcels, one a `next`: each a batch, or the exception it holds."""

    errands: tuple[Errand, ...]  # what each was sent for, and to whom
    copied: bool = False  # out of its slab, which is used again at once

    @property
    def numbers(self) -> tuple[int, ...]:
        """Return the numbers of the tickets, in order."""
        return tuple(errand.ticket.number for errand in self.errands)


@message
class RaiseFault:
    """Raise this fault in the loop."""

    fault: Fault
    held: tuple[Ticket, ...] = ()  # by the life that the loop waits for, of whatever epoch


@message
class FinishEpoch:
    """Tell the loop that the epoch is over."""


Command = (
    DrawTickets
    | StartLife
    | BeginEpoch
    | SendTickets
    | StopLife
    | KillLife
    | ExpectTurn
    | ReportLate
    | LookAround
    | ExamineLife
    | ResumeLife
    | ReportStall
    | ReportGrowth
    | ReleaseLock
    | AbandonLife
    | DropParcel
    | Deliver
    | RaiseFault
    | FinishEpoch
)
