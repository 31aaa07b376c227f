"""Where every drawn ticket is: in nobody's hands, with a life, arrived, or gone."""

from __future__ import annotations

from bisect import insort
from dataclasses import replace

from .batch_timings import Timings
from .events import ParcelsArrived
from .faults import Fault
from .frozen_values import message
from .loader_plan import Plan
from .reorder import ReorderWindow
from .slab_leases import KeptLeases, Lease
from .tickets import Errand, Ticket
from .worker_slots import Gap, Life, Seat


@message
class Coming:
    """How parcels came, those of one message: for who asks what the loop waited for."""

    event: ParcelsArrived
    before: Timings | None  # of the message before it, in this epoch; None: it is the first
    gap: Gap  # why there was a life before this one


@message
class Arrival:
    """A parcel that waits for the loop."""

    seat: Seat
    life: Life
    errand: Errand
    coming: Coming
    again: bool = False  # a life that had it before was lost

    @property
    def in_slab(self) -> bool:
        return self.coming.event.in_slab

    @property
    def lease(self) -> Lease:
        return self.errand.lease


class Ledger:
    """Keep the tickets of one epoch, from drawing to delivery. Each leaves exactly once."""

    __slots__ = (
        "_faults",
        "_numbers",
        "_reclaimed",
        "arrived",
        "kept",
        "pending",
        "short_of_leases",
        "window",
    )

    def __init__(self, plan: Plan) -> None:
        self.window = ReorderWindow(plan.order)
        self.pending: list[Ticket] = []  # in nobody's hands; by position
        self.arrived: dict[int, Arrival] = {}  # by ticket number
        # What was delivered in a slab and is not back.
        self.kept: KeptLeases[Life] = KeptLeases(plan.kept)
        self._faults: dict[int, Fault] = {}  # by ticket number
        self._numbers = 0
        self._reclaimed: set[int] = set()  # numbers of tickets that are loaded again
        self.short_of_leases = False  # when one was last asked for

    def draw(self, epoch: int, indices: object) -> Ticket:
        self._numbers += 1
        return Ticket(self._numbers, epoch, self.window.draw(), indices)

    def reclaim(
        self,
        ticket: Ticket,
        *,
        blamed: tuple[int, ...],
        spare: tuple[int, ...] = (),
        seat: int | None = None,
        untouched: bool = False,
    ) -> None:
        """Take a ticket back under a new number, so that no late parcel of it can count.

        `blamed`: the steps of it that lives were lost in. `spare`: places of samples that are not
        to be loaded any more. `seat`: whose it stays. `untouched`: whoever had it did nothing, so
        it is not loaded again but for the first time.
        """
        self._reclaimed.discard(ticket.number)
        self._numbers += 1
        spared = ticket.spared + spare
        again = replace(ticket, number=self._numbers, blamed=blamed, spared=spared, seat=seat)
        if not untouched:
            self._reclaimed.add(self._numbers)
        insort(self.pending, again, key=lambda t: t.position)

    def is_again(self, number: int) -> bool:
        """Say whether a life was lost that had this ticket, under another number."""
        return number in self._reclaimed

    def is_waited_for(self, held: dict[int, Errand]) -> bool:
        """Say whether the loop waits for one of these, or for whoever has none yet."""
        due = self.window.due()
        return due is None or not held or any(e.ticket.position == due for e in held.values())

    def arrive(self, errand: Errand, seat: Seat, life: Life, coming: Coming) -> None:
        life.leases.seal(errand.lease)
        number = errand.ticket.number
        self.window.arrive(errand.ticket.position, number)
        again = number in self._reclaimed
        self._reclaimed.discard(number)
        self.arrived[number] = Arrival(seat, life, errand, coming, again)

    def void(self, errand: Errand, seat: Seat, life: Life) -> None:
        """Close the position of a ticket of which nothing is left."""
        seat.undelivered -= 1
        life.leases.free(errand.lease)
        self._reclaimed.discard(errand.ticket.number)
        self.window.void(errand.ticket.position)

    def fail(self, ticket: Ticket | None, fault: Fault) -> None:
        """Let a fault take the place of a ticket's parcel, or a place of its own."""
        if ticket is None:
            self._numbers += 1
            number, position = self._numbers, self.window.draw()
        else:
            number, position = ticket.number, ticket.position
            self._reclaimed.discard(number)
        self._faults[number] = fault
        self.window.arrive(position, number, in_turn=ticket is None)

    def take_pending_of(self, seat: int) -> list[Ticket]:
        """Take out the tickets that wait for one seat."""
        found = [ticket for ticket in self.pending if ticket.seat == seat]
        self.pending = [ticket for ticket in self.pending if ticket.seat != seat]
        return found

    def void_pending(self) -> None:
        """Give up the tickets that waited for a stream: the last one is over."""
        for ticket in self.pending:
            self.window.void(ticket.position)
        self.pending.clear()

    def next_arrival(self) -> Arrival | None:
        """Give what `release` would begin with, if it is a parcel."""
        number = self.window.ready()
        return None if number is None else self.arrived.get(number)

    def release(self, most: int) -> tuple[tuple[Errand, ...], bool]:
        """Return the errands whose parcels are due now, and whether to copy them.

        What must be copied, because the loop keeps too much (`KeptLeases.keep`), comes alone.
        Nothing if the loop must wait, or a fault is due (see `take_fault`).
        """
        errands: list[Errand] = []
        while len(errands) < most and (number := self.window.ready()) is not None:
            arrival = self.arrived.get(number)
            if arrival is None:
                break
            seat, life, lease = arrival.seat, arrival.life, arrival.lease
            is_kept = arrival.in_slab and self.kept.keep(seat.number, life, lease)
            copied = not is_kept and arrival.in_slab
            if copied and errands:
                break
            self.window.release()
            errands.append(arrival.errand)
            del self.arrived[number]
            seat.undelivered -= 1
            if not is_kept:
                life.leases.free(lease)
            if copied:
                return (arrival.errand,), True
        return tuple(errands), False

    def take_fault(self) -> Fault | None:
        """Return what takes the place of the parcel that is due, if anything does."""
        if not self._faults or self.window.ready() not in self._faults:
            return None
        number = self.window.release()
        assert number is not None
        return self._faults.pop(number)

    def forget(self) -> list[int]:
        """Drop the whole epoch; give the numbers of the parcels that had arrived."""
        numbers = self.window.clear()
        for arrival in self.arrived.values():
            arrival.life.leases.free(arrival.lease)
        self.arrived.clear()
        self._faults.clear()
        self.pending.clear()
        self._reclaimed.clear()
        return numbers
