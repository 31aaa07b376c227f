"""What becomes of the tickets of a life that will not bring them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from .bundling import BundleSize
from .commands import RaiseFault
from .events import StreamMarked
from .fault_verdicts import Verdict, judge
from .faults import Fault, FaultKind, FaultLog
from .loader_plan import Plan, Source, Tenure
from .reorder import Order
from .ticket_tracking import Ledger
from .tickets import Ticket
from .worker_lifecycle import Loss, Out
from .worker_slots import Life, Seat, SeatCue, Seats, SeatState


class Recovery:
    """Decide about tickets, one lost life at a time."""

    __slots__ = ("_bundles", "_faults", "_ledger", "_plan", "_seats", "losses", "swallowed")

    def __init__(
        self, plan: Plan, seats: Seats, ledger: Ledger, pace: BundleSize, faults: FaultLog
    ) -> None:
        self._plan, self._seats, self._ledger = plan, seats, ledger
        self._bundles, self._faults = pace, faults
        self.losses: dict[int, Loss] = {}  # of each seat, in this epoch: the last that says how
        self.swallowed = 0  # tickets of this epoch that nobody else gets

    def __repr__(self) -> str:
        limits = self._plan.limits
        spares = f"{limits.spared} samples spared" if self._plan.spares else "none spared"
        return f"<Recovery {limits.attempts} attempts, {spares}, {self._faults.seen} faults>"

    def recover(self, loss: Loss, delivered: int, epoch: int) -> None:
        """Take back what a life held: what it worked on is judged, the rest is innocent."""
        seat, life = loss.seat, loss.life
        before = self.losses.get(seat.number)
        if before is None or before.kind is FaultKind.REFUSED or loss.says_how:
            self.losses[seat.number] = loss  # else the one before says more
        seat.undelivered -= len(loss.tickets)
        if seat.state is not SeatState.OPEN:
            return
        if seat.ends:  # its stream was over
            self._spend(seat, loss.tickets)
            return
        if loss.is_innocent:  # it comes from where it must not; `may_turn` was asked before
            own = seat.number if self._plan.source is Source.STREAMS else None
            for ticket in loss.tickets:
                self._ledger.reclaim(ticket, blamed=(), seat=own)
            return
        if self._plan.source is Source.STREAMS:
            unbegun = self._plan.restarts and not seat.past
            unbegun = unbegun and (life.epoch != epoch or loss.is_told)
            if (unbegun or self.resumes(seat)) and loss.kind is not FaultKind.REFUSED:
                self._resume_stream(loss, delivered)
            else:
                self._lose_stream(loss, delivered)
            return
        self._bundles.stay_slow()  # whoever takes the next worker with it is alone with it
        fault = loss.as_fault(loss.kind, loss.suspect, delivered)
        for ticket in loss.tickets:
            if ticket is loss.suspect:
                verdict = self._judge(fault, ticket)
                fault = replace(fault, verdict=verdict.value)
                hung = fault.kind is FaultKind.HANG  # and lasted: no loop without an end
                if verdict is Verdict.SPARE or (verdict is Verdict.RAISE and hung):
                    seat.barren = 0
            else:
                untouched = loss.did_nothing
                self._ledger.reclaim(ticket, blamed=ticket.blamed, untouched=untouched)
        # A refusal is a fault when nobody tries any more.
        if fault.kind is not FaultKind.REFUSED and not loss.is_told:
            self._faults.note(fault)

    def stream_marked(self, event: StreamMarked, now: float, out: Out) -> None:
        self._seats.all[event.seat].can_resume = event.can_resume

    def can_go_on(self, seat: Seat) -> bool:
        """Whether another worker can do all that is left to do in a seat, and nobody misses what
        the present one has kept in its memory."""
        if self._plan.tenure is Tenure.LOADER or self._plan.torch_draws:
            return False
        return self._plan.source is Source.INDICES or bool(seat.can_resume)

    def resumes(self, seat: Seat) -> bool:
        """Whether the stream of a seat can be taken up again: by its state, or by policy."""
        if self._plan.spares or seat.can_resume is None:
            return self._plan.resumes
        return seat.can_resume

    def may_turn(self) -> bool:
        """Whether all lives can be made anew at this moment, and nothing is lost by it: a stream
        of which something was taken must be able to go on."""
        if self._plan.source is Source.INDICES:
            return True
        if not self._plan.restarts:
            return False
        return all(
            seat.state is not SeatState.OPEN or not seat.past or self.resumes(seat)
            for seat in self._seats.all
        )

    def _judge(self, fault: Fault, ticket: Ticket) -> Verdict:
        limits, place = self._plan.limits, fault.place
        blamed = (*ticket.blamed, fault.step)
        left = blamed.count(fault.step) < limits.attempts and len(blamed) < limits.tries
        spares = self._plan.spares and place is not None and len(ticket.spared) < limits.spared
        verdict = judge(fault.kind, left=left, spares=spares)
        match verdict:
            case Verdict.RETRY:
                self._ledger.reclaim(ticket, blamed=blamed)
            case Verdict.SPARE:
                assert place is not None
                self._ledger.reclaim(ticket, blamed=(), spare=(place,))
            case Verdict.RAISE:
                self._ledger.fail(ticket, fault)
        return verdict

    def time_out(self, seconds: float, delivered: int) -> RaiseFault:
        """Return what the loop has waited for, who has it, and all that is with that life."""
        fault = Fault(FaultKind.TIMEOUT, delivered=delivered, seconds=seconds)
        held: tuple[Ticket, ...] = ()
        due = self._ledger.window.due()
        for seat, life, ticket in self._seats.in_hand():
            if ticket.position == due:
                fault = replace(fault, seat=seat.number, life=life.number, ticket=ticket)
                held = life.tickets()
        self._faults.note(fault)
        return RaiseFault(fault, held)

    def _resume_stream(self, loss: Loss, delivered: int) -> None:
        """Have the next life of the seat go on where this one was. If that breaks off, too, before
        it brought anything, it does so at the same place: nobody gets past it."""
        suspect, seat, most = loss.suspect, loss.seat, self._plan.limits.attempts
        if seat.barren >= most or (suspect is not None and suspect.attempt >= most):
            self._lose_stream(loss, delivered)
            return
        fault = loss.as_fault(loss.kind, suspect, delivered)
        for ticket in loss.tickets:
            blamed = ticket.blamed + (fault.step,) * (ticket is suspect)
            untouched = loss.did_nothing
            self._ledger.reclaim(ticket, blamed=blamed, seat=seat.number, untouched=untouched)
        if not loss.is_told:
            self._faults.note(replace(fault, verdict=Verdict.RETRY.value))

    def end_streams(self) -> None:
        """End the streams that are over.

        Workers that stay are asked for as much as torch asks them for, since their next epoch may
        begin where this one is left. Torch learns of the end of a stream in its turn, and asks for
        more of it until then; and never takes back what it has asked for beyond the end.
        """
        like_torch = self._plan.tenure is Tenure.LOADER and self._plan.order is Order.STRICT
        for seat in self._seats.all:
            life = seat.life
            if not seat.ends or life is None:
                continue
            if not like_torch or self._ledger.window.due() == seat.ends[0].position:
                if like_torch:
                    self.swallowed += len(life.held) - 1
                self._end_stream(seat, life)

    def _end_stream(self, seat: Seat, life: Life) -> None:
        """Void what the seat still holds: its stream is over for this epoch."""
        seat.undelivered -= len(life.held)
        held = tuple(errand.ticket for errand in life.held.values())
        life.orphan_tickets()
        for ticket in seat.ends:
            life.let_go(ticket.number)
        self._spend(seat, held)

    def _spend(self, seat: Seat, held: Sequence[Ticket]) -> None:
        """Ask nothing more of a seat in this epoch; void what it was asked for."""
        for ticket in (*held, *self._ledger.take_pending_of(seat.number)):
            self._ledger.window.void(ticket.position)
        seat.ends.clear()
        self._seats.move(seat, SeatCue.SPEND)
        if not self._seats.loadable:
            self._ledger.void_pending()

    def why_lost(self, seat: Seat) -> Loss:
        """Give what became of the lives of a seat; if nobody knows, of another's: they have the
        same parent."""
        loss = self.losses[seat.number]
        telling = (each for each in self.losses.values() if each.says_how)
        return loss if loss.says_how else next(telling, loss)

    def give_up_stream(self, seat: Seat, delivered: int) -> Fault:
        """Raise, in turn, that nobody goes on with the stream of a seat any more."""
        waiting = tuple(self._ledger.take_pending_of(seat.number))
        return self._lose_stream(replace(self.losses[seat.number], tickets=waiting), delivered)

    def _lose_stream(self, loss: Loss, delivered: int) -> Fault:
        """Raise once, in turn, that a stream broke off; void what was asked of it beyond that."""
        first = loss.tickets[0] if loss.tickets else None
        fault = loss.as_fault(FaultKind.STREAM_LOST, first, delivered)
        self._faults.note(fault)
        self._ledger.fail(first, fault)
        waiting = self._ledger.take_pending_of(loss.seat.number)
        for ticket in (*loss.tickets[1:], *waiting):
            self._ledger.window.void(ticket.position)
        self._seats.move(loss.seat, SeatCue.LOSE)
        if not self._seats.loadable:
            self._ledger.void_pending()
        return fault
