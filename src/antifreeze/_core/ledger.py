"""Where every drawn ticket is: in nobody's hands, with a life, arrived, or gone."""

from __future__ import annotations

from bisect import insort

from .faults import Fault
from .leases import Lease, LeaseTable
from .plan import Plan
from .reorder import ReorderWindow
from .seats import Life, Seat
from .tickets import Ticket


class Ledger:
    """Keep the tickets of one epoch, from drawing to delivery. Each leaves exactly once."""

    __slots__ = ("_arrived", "_faults", "_numbers", "leases", "pending", "window")

    def __init__(self, plan: Plan) -> None:
        self.window = ReorderWindow(plan.order)
        # Twice the window: tickets of a broken-off epoch may be out while the next one begins.
        self.leases = LeaseTable(2 * plan.window)
        self.pending: list[Ticket] = []  # in nobody's hands; by position
        self._arrived: dict[int, tuple[Seat, Lease]] = {}  # parcels, by ticket number
        self._faults: dict[int, Fault] = {}  # by ticket number
        self._numbers = 0

    def draw(self, epoch: int, indices: object) -> Ticket:
        self._numbers += 1
        return Ticket(self._numbers, epoch, self.window.draw(), indices)

    def hand_out(self, ticket: Ticket, seat: Seat, life: Life, lease: Lease) -> None:
        life.held[ticket.number] = (ticket, lease)
        seat.undelivered += 1

    def reclaim(self, ticket: Ticket, *, attempt: int) -> None:
        """Take a ticket back under a new number, so that no late parcel of it can count."""
        self._numbers += 1
        again = Ticket(self._numbers, ticket.epoch, ticket.position, ticket.indices, attempt)
        insort(self.pending, again, key=lambda t: t.position)

    def arrive(self, ticket: Ticket, seat: Seat, lease: Lease) -> None:
        self.leases.seal(lease)
        self.window.arrive(ticket.position, ticket.number)
        self._arrived[ticket.number] = (seat, lease)

    def fail(self, ticket: Ticket | None, fault: Fault) -> None:
        """Let a fault take the place of a ticket's parcel, or a place of its own."""
        if ticket is None:
            self._numbers += 1
            number, position = self._numbers, self.window.draw()
        else:
            number, position = ticket.number, ticket.position
        self._faults[number] = fault
        self.window.arrive(position, number, in_turn=ticket is None)

    def void_pending(self) -> None:
        """Give up the tickets that waited for a stream: the last one is over."""
        for ticket in self.pending:
            self.window.void(ticket.position)
        self.pending.clear()

    def release(self) -> int | None:
        """Give the number of the ticket that is due, or None if the loop must wait."""
        number = self.window.release()
        if number is not None and number in self._arrived:
            seat, lease = self._arrived.pop(number)
            seat.undelivered -= 1
            self.leases.free(lease)
        return number

    def take_fault(self, number: int) -> Fault | None:
        """Give what takes the place of this ticket's parcel, if anything does."""
        return self._faults.pop(number, None) if self._faults else None

    def forget(self) -> list[int]:
        """Drop the whole epoch; give the numbers of the parcels that had arrived."""
        numbers = self.window.clear()
        for _, lease in self._arrived.values():
            self.leases.free(lease)
        self._arrived.clear()
        self._faults.clear()
        self.pending.clear()
        return numbers

    @property
    def arrived(self) -> dict[int, tuple[Seat, Lease]]:
        return self._arrived
