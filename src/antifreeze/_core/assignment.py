"""Who gets which ticket."""

from __future__ import annotations

from . import commands as do
from .loader_plan import Plan, Source
from .reorder import Order
from .ticket_tracking import Ledger
from .tickets import Errand, Ticket
from .worker_lifecycle import Out, WorkerLifecycle


class TicketAssigner:
    """Give tickets to seats, and send each seat all that one event dealt it in one message."""

    __slots__ = ("_choose", "_dealt", "_ledger", "_lifecycle")

    def __init__(self, plan: Plan, crew: WorkerLifecycle, ledger: Ledger) -> None:
        self._lifecycle = crew
        self._ledger = ledger
        self._dealt: dict[int, list[Errand]] = {}  # by seat
        # Where it matters which worker loads a batch, each has its turn, as in torch.
        in_turn = plan.source is Source.STREAMS or plan.torch_draws
        self._choose = (
            crew.seats.next_in_turn
            if in_turn and plan.order is Order.STRICT
            else crew.seats.least_loaded
        )

    def deal(self, ticket: Ticket, now: float) -> None:
        """Give a ticket to a seat, or put it with those that wait for one."""
        if self._ledger.pending or not self._hand_out(ticket, now):
            self._ledger.pending.append(ticket)

    def deal_pending(self, now: float) -> None:
        pending = self._ledger.pending
        while pending and self._hand_out(pending[0], now):
            del pending[0]

    def send(self, out: Out) -> None:
        """Send what was dealt since the last call."""
        for number, errands in self._dealt.items():
            life = self._lifecycle.seats.all[number].life
            assert life is not None
            out.append(do.SendTickets(number, life.number, tuple(errands)))
        self._dealt.clear()

    def _hand_out(self, ticket: Ticket, now: float) -> bool:
        seat = self._choose() if ticket.seat is None else self._lifecycle.seats.all[ticket.seat]
        if seat is None or seat.life is None or not seat.takes_tickets:
            return False
        life = seat.life
        lease = life.leases.lend()
        self._ledger.short_of_leases = lease is None
        if lease is None:
            if ticket.seat is None:
                self._lifecycle.seats.keep_turn(seat)
            return False
        errand = Errand(ticket, lease, seat.number, life.number)
        life.held[ticket.number] = errand
        seat.undelivered += 1
        if len(life.held) == 1:
            self._lifecycle.begin_work(life, now)
        self._dealt.setdefault(seat.number, []).append(errand)
        return True
