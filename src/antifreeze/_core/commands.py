"""What to do: everything the supervisor can ask of the driver, in the imperative."""

from __future__ import annotations

from enum import Enum

from .faults import Fault
from .leases import Lease
from .messages import message
from .tickets import Ticket


class Force(Enum):
    """How hard to end a life."""

    TERMINATE = "terminate"
    KILL = "kill"


@message
class DrawTicket:
    """Ask the sampler for one more batch; answer with what it gave."""


@message
class StartLife:
    """Bring up a worker in a seat; answer `LifeReady`, then `EpochBegun`; or `LifeEnded`."""

    seat: int
    life: int
    epoch: int


@message
class BeginEpoch:
    """Tell a life that a new epoch begins; answer `EpochBegun`."""

    seat: int
    life: int
    epoch: int


@message
class SendTicket:
    """Hand a ticket to a life, with the lease its parcel may use."""

    seat: int
    life: int
    ticket: Ticket
    lease: Lease


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
    """Give the loop the parcel of this ticket: a batch, or the exception it holds."""

    number: int


@message
class RaiseFault:
    """Raise this fault in the loop."""

    fault: Fault


@message
class FinishEpoch:
    """Tell the loop that the epoch is over."""


Command = (
    DrawTicket
    | StartLife
    | BeginEpoch
    | SendTicket
    | StopLife
    | KillLife
    | AbandonLife
    | DropParcel
    | Deliver
    | RaiseFault
    | FinishEpoch
)
