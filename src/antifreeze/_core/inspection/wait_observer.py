"""What the core reports about the loop's waits: when one begins, what holds it up, what ends it.

The core decides nothing by it. Whoever accounts for waits (`_reporting/wait_causes.py`) is handed
to the supervisor and called at these moments.
"""

from __future__ import annotations

from typing import Protocol

from ..events import ParcelsArrived
from ..ticket_tracking import Arrival, Ledger
from ..worker_slots import Life, Seat, Seats


class WaitObserver(Protocol):
    """Called by one supervisor, in the thread that handles its events. Never blocks."""

    def attach(self, seats: Seats, ledger: Ledger) -> None:
        """Take what is observed: its state may be read at any time, and never changed."""

    def begin(self, now: float) -> None:
        """The loop asks for a batch."""

    def sampled(self, seconds: float) -> None:
        """The sampler took this long while the loop waited."""

    def came(self, seat: Seat, life: Life, event: ParcelsArrived) -> None:
        """Parcels came; the worker process still holds their tickets."""

    def look(self, now: float, *, more: bool) -> None:
        """The loop still waits. `more`: the sampler would yield more if there were room."""

    def end(self, now: float, arrival: Arrival | None, *, fault: bool) -> None:
        """The loop has its answer: a parcel, a fault, or the end of the epoch (neither)."""


class NoObserver:
    """Account for nothing."""

    def attach(self, seats: Seats, ledger: Ledger) -> None: ...

    def begin(self, now: float) -> None: ...

    def sampled(self, seconds: float) -> None: ...

    def came(self, seat: Seat, life: Life, event: ParcelsArrived) -> None: ...

    def look(self, now: float, *, more: bool) -> None: ...

    def end(self, now: float, arrival: Arrival | None, *, fault: bool) -> None: ...
