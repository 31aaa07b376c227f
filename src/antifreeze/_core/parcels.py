"""Which parcels count, and what each means for its ticket, its worker and its stream."""

from __future__ import annotations

from .commands import DropParcel
from .events import Outcome
from .faults import Fault, FaultKind, FaultLog
from .loader_plan import Plan, Source
from .ticket_tracking import Coming, Ledger
from .worker_lifecycle import Out, WorkerLifecycle
from .worker_slots import Life, Seat


class ParcelIntake:
    """Take in parcels as they come. One counts if its ticket is still held by who sent it."""

    __slots__ = ("_faults", "_ledger", "_lifecycle", "_streams")

    def __init__(
        self, plan: Plan, lifecycle: WorkerLifecycle, ledger: Ledger, faults: FaultLog
    ) -> None:
        self._streams = plan.source is Source.STREAMS
        self._lifecycle, self._ledger, self._faults = lifecycle, ledger, faults

    def take(
        self, seat: Seat, life: Life, number: int, coming: Coming, delivered: int, out: Out
    ) -> bool:
        """Take in one parcel. Return whether it says that the stream of its worker is over."""
        outcome = coming.event.outcome
        errand = life.held.get(number)
        if errand is None or errand.ticket in seat.ends:
            life.let_go(number)
            self.drop_late(number, out)
            return False
        life.brought += 1
        if outcome is Outcome.ENDED:
            self.drop_late(number, out)
            seat.ends.append(errand.ticket)
            return True
        del life.held[number]
        if outcome is Outcome.EMPTY:
            self._ledger.void(errand, seat, life)
            self.drop_late(number, out)
            return False
        seat.past += self._streams
        self._ledger.arrive(errand, seat, life, coming)
        if outcome is Outcome.FAILED:
            self._lifecycle.note_lost(seat, life, alive=True)
            where = (seat.number, life.number, errand.ticket)
            self._faults.note(Fault(FaultKind.EXCEPTION, *where, delivered=delivered))
        return False

    def drop_late(self, number: int, out: Out) -> None:
        """Drop a parcel that counts for nothing, unless it came twice: the first one counts."""
        if number not in self._ledger.arrived:
            out.append(DropParcel(number))
