"""What a supervisor is asked to do for one loader, fixed for its whole run."""

from __future__ import annotations

from enum import Enum

from .frozen_values import frozen
from .limits import LIMITS, Limits
from .reorder import Order


class Source(Enum):
    """Where the content of a batch comes from."""

    INDICES = "indices"  # a map-style dataset: any seat can load any ticket, again if need be
    STREAMS = "streams"  # an iterable dataset: each seat has a stream of its own


class Tenure(Enum):
    """How long lives stay."""

    EPOCH = "epoch"
    LOADER = "loader"  # persistent workers


@frozen
class Plan:
    """One loader's wishes, fixed for its whole run."""

    seats: int
    window: int  # tickets drawn and not yet delivered, at most; bundles of them where they are tiny
    order: Order = Order.STRICT
    source: Source = Source.INDICES
    longest_bundle: int = LIMITS.bundles.tickets  # tickets; 1 takes the window literally
    tenure: Tenure = Tenure.EPOCH
    timeout_s: float = 0.0  # the user's `timeout` for one batch; 0 means none
    spares: bool = False  # a sample that ends or hangs its worker again is left to the policy
    resumes: bool = False  # a stream that breaks off can be taken up again
    restarts: bool = False  # a stream of which nothing was taken can be begun anew
    torch_draws: bool = False  # what a sample draws follows from what its worker drew before it
    limits: Limits = Limits()

    def __post_init__(self) -> None:
        if self.longest_bundle < 1:
            raise ValueError(f"a bundle holds a ticket at least, not {self.longest_bundle}")
        if self.seats < 1 or self.window < 1:
            raise ValueError(f"a plan needs a seat and a window, not {self.seats}, {self.window}")

    @property
    def kept(self) -> int:
        """Count the slabs that the loop may keep; what it keeps beyond that is copied for it.

        As many again as are in flight, and two: the batch in hand while the next one comes, and
        one more for a loop that looks back.
        """
        return self.window + 2

    @property
    def leases_a_life(self) -> int:
        """Bound the slots of one life.

        Twice the window, since tickets of a broken-off epoch may be out while the next one begins.
        """
        return 2 * self.window * self.longest_bundle + self.kept
