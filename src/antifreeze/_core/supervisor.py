"""The one that decides: what to draw, who loads it, who is replaced, what the loop receives.

1. `handle(event, now)` gives the commands to perform, in order. It never waits and never raises
   for what the world does: crashes, late messages and lies are events like any other.
2. Every position of an epoch is delivered once, raised once, or void; never twice, never lost.
3. A parcel counts only if its ticket's number is still held by the life that sent it.
4. `next_wakeup()` is the time of the next deadline; tell `ClockRang` at or after it.
5. `check()` yields what is unsound. It yields nothing, after every step.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from typing import Any

from . import commands as do
from . import events as ev
from .deadlines import DeadlineKind, Deadlines, Key
from .faults import Ending, Fault, FaultKind
from .ledger import Ledger
from .plan import Drawing, Plan, Source, Tenure
from .reorder import Order
from .seats import EMPLOYED, Life, LifeCue, LifeState, Seat, SeatCue, Seats, SeatState
from .snapshots import SupervisorSnapshot, snapshot_seat
from .states import State
from .story import KEPT, Story
from .tickets import Progress, Ticket
from .verdicts import Verdict, judge

FAULTS_KEPT = 64  # for reports; the count goes on
LOOP_KEY: Key = (DeadlineKind.LOOP, -1, -1)
LIFE_DEADLINES = (
    DeadlineKind.START,
    DeadlineKind.TICKET,
    DeadlineKind.STOP,
    DeadlineKind.TERMINATE,
    DeadlineKind.KILL,
)
DRAW_TICKET = do.DrawTicket()

Out = list[do.Command]


class Run(State):
    IDLE = "idle"  # no epoch yet
    RUNNING = "running"
    FINISHED = "finished"  # the epoch is over
    BROKEN = "broken"  # a fault ended the run; what is loaded is still delivered
    CLOSED = "closed"


class Loop(State):
    AWAY = "away"  # busy with its own work
    WAITING = "waiting"  # inside `next`


class Sampling(State):
    MORE = "more"
    ASKED = "asked"  # a draw is on its way
    ENDED = "ended"


@dataclass(frozen=True, slots=True)
class Loss:
    """A life that will bring nothing more, and the tickets it held, oldest first."""

    seat: Seat
    life: Life
    was: LifeState
    tickets: tuple[Ticket, ...]
    kind: FaultKind
    ending: Ending | None


class Supervisor:
    """Turn events into commands. One for each iterator; not thread-safe; no I/O."""

    def __init__(self, plan: Plan, *, story_limit: int | None = KEPT) -> None:
        self.plan = plan
        self.story = Story(story_limit)
        self._record = self.story.record
        self._epoch = 0
        self._seed_base = 0
        self._delivered = 0
        self._run = Run.IDLE
        self._loop = Loop.AWAY
        self._sampling = Sampling.MORE
        self._seats = Seats(plan.seats)
        self._ledger = Ledger(plan)
        self._deadlines = Deadlines()
        self._dying: dict[tuple[int, int], Life] = {}  # replaced before they were gone
        self._stopped_by: Fault | None = None
        self._asked_at = 0.0
        self._restarts = 0
        self._faults: deque[Fault] = deque(maxlen=FAULTS_KEPT)
        self._faults_seen = 0
        self._choose = (
            self._seats.next_in_turn
            if plan.source is Source.STREAMS and plan.order is Order.STRICT
            else self._seats.least_loaded
        )
        self._on: dict[type, Callable[[Any, float, Out], None]] = {
            ev.EpochAsked: self._on_epoch_asked,
            ev.LoopAsked: self._on_loop_asked,
            ev.TicketDrawn: self._on_ticket_drawn,
            ev.SamplerEnded: self._on_sampler_ended,
            ev.SamplerFailed: self._on_sampler_failed,
            ev.LifeReady: self._on_life_ready,
            ev.EpochBegun: self._on_epoch_begun,
            ev.ParcelArrived: self._on_parcel_arrived,
            ev.LifeEnded: self._on_life_ended,
            ev.ClockRang: self._on_clock_rang,
            ev.CloseAsked: self._on_close_asked,
        }

    # ---- seen from outside ------------------------------------------------------------------

    def handle(self, event: ev.Event, now: float) -> list[do.Command]:
        """Take one event; give the commands it leads to, in the order to perform them."""
        out: Out = []
        self._on[type(event)](event, now, out)
        self._record((now, event, out))
        return out

    def next_wakeup(self) -> float | None:
        return self._deadlines.next()

    @property
    def progress(self) -> Progress:
        """Say how far the loop has come: the value a later run goes on from."""
        return Progress(self._epoch, self._delivered, self._seed_base)

    @property
    def at_rest(self) -> bool:
        """Say whether no life is left."""
        return not self._dying and not self._seats.living()

    @property
    def closed(self) -> bool:
        return self._run is Run.CLOSED

    def check(self) -> Iterator[str]:
        from .soundness import unsound

        return unsound(self)

    def snapshot(self) -> SupervisorSnapshot:
        return SupervisorSnapshot(
            run=self._run.value,
            loop=self._loop.value,
            progress=self.progress,
            in_window=self._ledger.window.count,
            window=self.plan.window,
            pending=len(self._ledger.pending),
            restarts=self._restarts,
            seats=tuple(snapshot_seat(seat) for seat in self._seats.all),
            faults=tuple(self._faults),
            faults_seen=self._faults_seen,
        )

    # ---- the loop ---------------------------------------------------------------------------

    def _on_epoch_asked(self, event: ev.EpochAsked, now: float, out: Out) -> None:
        if self._run in (Run.CLOSED, Run.BROKEN):
            return
        self._forget_epoch(out)
        self._epoch, self._delivered, self._seed_base = event.epoch, 0, event.seed_base
        self._run, self._sampling = Run.RUNNING, Sampling.MORE
        self._loop_leaves()
        self._seats.rewind()
        for seat in self._seats.all:
            self._seats.move(seat, SeatCue.RENEW)
            seat.failed_starts = seat.barren = 0
            self._deadlines.clear((DeadlineKind.REST, seat.number, -1))
            life = seat.life
            if life is None:
                self._start(seat, now, out)
            elif life.state in EMPLOYED:
                out.append(do.BeginEpoch(seat.number, life.number, event.epoch))
        self._go_on(now, out)

    def _on_loop_asked(self, event: ev.LoopAsked, now: float, out: Out) -> None:
        self._loop = Loop.WAITING
        self._asked_at = now
        if self.plan.timeout_s > 0:
            self._deadlines.set(LOOP_KEY, now + self.plan.timeout_s)
        self._go_on(now, out)

    def _on_close_asked(self, event: ev.CloseAsked, now: float, out: Out) -> None:
        if self._run is Run.CLOSED:
            return
        self._run = Run.CLOSED
        self._forget_epoch(out)
        self._loop_leaves()
        for seat in self._seats.all:
            self._seats.move(seat, SeatCue.CLOSE)
            self._deadlines.clear((DeadlineKind.REST, seat.number, -1))
            self._stop(seat, now, out)

    def _go_on(self, now: float, out: Out) -> None:
        """Do whatever can be done now: deal what was taken back, answer the loop, draw more."""
        if self._ledger.pending and self._run is Run.RUNNING:
            self._deal_pending(now, out)
        if self._loop is Loop.WAITING and not self._must_wait():
            self._answer_loop(now, out)
        if self._sampling is Sampling.MORE:
            self._draw_ahead(out)

    def _must_wait(self) -> bool:
        """Say at once that there is no answer yet: nothing has arrived, but something may."""
        window = self._ledger.window
        if window.has_arrivals or self._run is not Run.RUNNING:
            return False
        return window.count > 0 or (self._sampling is not Sampling.ENDED and self._seats.loadable)

    def _answer_loop(self, now: float, out: Out) -> None:
        number = self._ledger.release()
        if number is not None:
            self._loop_leaves()
            self._delivered += 1
            fault = self._ledger.take_fault(number)
            out.append(do.Deliver(number) if fault is None else do.RaiseFault(fault))
        elif self._run is Run.BROKEN and self._stopped_by is not None:
            self._loop_leaves()
            out.append(do.RaiseFault(self._stopped_by))
        elif self._run is not Run.RUNNING:
            self._loop_leaves()
            out.append(do.FinishEpoch())
        elif self._epoch_is_over():
            self._loop_leaves()
            self._run = Run.FINISHED
            if self.plan.tenure is Tenure.EPOCH:
                for seat in self._seats.all:
                    self._stop(seat, now, out)
            out.append(do.FinishEpoch())

    def _loop_leaves(self) -> None:
        self._loop = Loop.AWAY
        if self.plan.timeout_s > 0:
            self._deadlines.clear(LOOP_KEY)

    def _epoch_is_over(self) -> bool:
        if self._ledger.window.count:
            return False
        return self._sampling is Sampling.ENDED or not self._seats.loadable

    def _forget_epoch(self, out: Out) -> None:
        """Take back every ticket. What is still on its way is orphaned and will be dropped."""
        out.extend(do.DropParcel(number) for number in self._ledger.forget())
        for seat in self._seats.all:
            seat.undelivered = 0
            if seat.life is not None:
                seat.life.orphans.extend(lease for _, lease in seat.life.held.values())
                seat.life.held.clear()
                self._deadlines.clear((DeadlineKind.TICKET, seat.number, seat.life.number))

    # ---- drawing and dealing ----------------------------------------------------------------

    def _draw_ahead(self, out: Out) -> None:
        """Ask the sampler for the next batch, if the window has room for it."""
        if (
            self._sampling is Sampling.MORE
            and self._run is Run.RUNNING
            and (self._loop is Loop.WAITING or self.plan.drawing is Drawing.AHEAD)
            and self._ledger.window.count < self.plan.window
            and self._seats.loadable
        ):
            self._sampling = Sampling.ASKED
            out.append(DRAW_TICKET)

    def _on_ticket_drawn(self, event: ev.TicketDrawn, now: float, out: Out) -> None:
        if self._sampling is not Sampling.ASKED:
            return
        self._sampling = Sampling.MORE
        if self._run is not Run.RUNNING or not self._seats.loadable:
            return
        ticket = self._ledger.draw(self._epoch, event.indices)
        if self._ledger.pending or not self._deal(ticket, now, out):
            self._ledger.pending.append(ticket)
            self._go_on(now, out)
        elif self.plan.drawing is Drawing.AHEAD:
            self._draw_ahead(out)

    def _on_sampler_ended(self, event: ev.SamplerEnded, now: float, out: Out) -> None:
        if self._sampling is Sampling.ASKED:
            self._sampling = Sampling.ENDED
            self._go_on(now, out)

    def _on_sampler_failed(self, event: ev.SamplerFailed, now: float, out: Out) -> None:
        if self._sampling is not Sampling.ASKED:
            return
        self._sampling = Sampling.MORE
        fault = Fault(FaultKind.SAMPLER, delivered=self._delivered)
        self._note(fault)
        self._ledger.fail(None, fault)
        self._go_on(now, out)

    def _deal(self, ticket: Ticket, now: float, out: Out) -> bool:
        """Give a ticket to a seat; say whether there was one, and room for the parcel."""
        lease = self._ledger.leases.lend()
        if lease is None:
            return False
        seat = self._choose()
        if seat is None or seat.life is None:
            self._ledger.leases.free(lease)
            return False
        self._ledger.hand_out(ticket, seat, seat.life, lease)
        if self.plan.limits.ticket_s is not None and len(seat.life.held) == 1:
            self._watch_ticket(seat, seat.life, now)
        out.append(do.SendTicket(seat.number, seat.life.number, ticket, lease))
        return True

    def _deal_pending(self, now: float, out: Out) -> None:
        if not any(seat.takes_tickets for seat in self._seats.all):
            for seat in self._seats.all:
                self._staff(seat, None, now, out)
        pending = self._ledger.pending
        while pending and self._deal(pending[0], now, out):
            del pending[0]

    # ---- parcels ----------------------------------------------------------------------------

    def _on_parcel_arrived(self, event: ev.ParcelArrived, now: float, out: Out) -> None:
        seat = self._seats.all[event.seat]
        life = seat.life
        if life is None or life.number != event.life or event.number not in life.held:
            out.append(do.DropParcel(event.number))
            return
        ticket, lease = life.held.pop(event.number)
        life.brought += 1
        seat.barren = 0
        if event.outcome is ev.Outcome.ENDED:
            life.held[event.number] = (ticket, lease)
            self._end_stream(seat, life, now, out)
        else:
            self._ledger.arrive(ticket, seat, lease)
            if event.outcome is ev.Outcome.FAILED:
                self._note(Fault(FaultKind.EXCEPTION, event.seat, event.life, ticket))
        if self.plan.limits.ticket_s is not None:
            self._watch_ticket(seat, life, now)
        self._go_on(now, out)

    def _end_stream(self, seat: Seat, life: Life, now: float, out: Out) -> None:
        """Void what the seat still holds: its stream is over for this epoch."""
        seat.undelivered -= len(life.held)
        for ticket, lease in life.held.values():
            self._ledger.window.void(ticket.position)
            life.orphans.append(lease)
        life.held.clear()
        self._seats.move(seat, SeatCue.SPEND)
        if self.plan.tenure is Tenure.EPOCH:
            self._stop(seat, now, out)

    def _watch_ticket(self, seat: Seat, life: Life, now: float) -> None:
        """Give the ticket that is being worked on its deadline."""
        if self.plan.limits.ticket_s is None:
            return
        key = (DeadlineKind.TICKET, seat.number, life.number)
        if life.held and life.state is LifeState.SERVING:
            self._deadlines.set(key, now + self.plan.limits.ticket_s)
        else:
            self._deadlines.clear(key)

    # ---- lives ------------------------------------------------------------------------------

    def _start(self, seat: Seat, now: float, out: Out) -> None:
        if seat.lives:
            self._restarts += 1
        seat.lives += 1
        seat.life = Life(seat.lives, now)
        key = (DeadlineKind.START, seat.number, seat.lives)
        self._deadlines.set(key, now + self.plan.limits.start_s)
        out.append(do.StartLife(seat.number, seat.lives, self._epoch))

    def _on_life_ready(self, event: ev.LifeReady, now: float, out: Out) -> None:
        seat = self._seats.all[event.seat]
        life = seat.life
        if life is None or life.number != event.life or life.state is LifeState.SERVING:
            return
        life.move(LifeCue.READY)
        seat.failed_starts = 0
        self._deadlines.clear((DeadlineKind.START, seat.number, life.number))
        self._watch_ticket(seat, life, now)

    def _on_epoch_begun(self, event: ev.EpochBegun, now: float, out: Out) -> None:
        life = self._seats.all[event.seat].life
        if life is None or life.number != event.life or event.epoch != self._epoch:
            return
        for lease in life.orphans:
            self._ledger.leases.free(lease)
        life.orphans.clear()
        self._go_on(now, out)

    def _stop(self, seat: Seat, now: float, out: Out) -> None:
        """Ask a life to leave; `_on_clock_rang` gets harder if it does not."""
        life = seat.life
        if life is None or life.state not in EMPLOYED:
            return
        limits = self.plan.limits
        # A seat whose stream is over has nothing left to do, whatever it still owes.
        idle = seat.state is SeatState.SPENT or not (life.held or life.orphans)
        idle = idle and life.state is LifeState.SERVING
        stop_s = limits.stop_idle_s if idle else limits.stop_s
        life.move(LifeCue.STOP)
        self._deadlines.clear((DeadlineKind.START, seat.number, life.number))
        self._deadlines.clear((DeadlineKind.TICKET, seat.number, life.number))
        key = (DeadlineKind.STOP, seat.number, life.number)
        self._deadlines.set(key, now + stop_s)
        out.append(do.StopLife(seat.number, life.number))

    def _on_life_ended(self, event: ev.LifeEnded, now: float, out: Out) -> None:
        dying = self._dying.pop((event.seat, event.life), None)
        if dying is not None:
            self._bury(event.seat, dying)
            self._go_on(now, out)
            return
        seat = self._seats.all[event.seat]
        life = seat.life
        if life is None or life.number != event.life:
            return
        tickets = tuple(ticket for ticket, _ in life.held.values())
        loss = Loss(seat, life, life.state, tickets, FaultKind.CRASH, event.ending)
        self._bury(event.seat, life)
        seat.life = None
        if loss.was in EMPLOYED and self._run is Run.RUNNING:
            self._recover(loss)
            self._staff(seat, loss, now, out)
        self._go_on(now, out)

    def _bury(self, seat: int, life: Life) -> None:
        """Free all that a life held; it can touch nothing any more."""
        for lease in life.leases():
            self._ledger.leases.free(lease)
        life.move(LifeCue.END)
        for kind in LIFE_DEADLINES:
            self._deadlines.clear((kind, seat, life.number))

    # ---- recovery ---------------------------------------------------------------------------

    def _recover(self, loss: Loss) -> None:
        """Decide about the tickets of a life that will not bring them."""
        seat, life = loss.seat, loss.life
        seat.undelivered -= len(loss.tickets)
        seat.barren = 0 if life.brought else seat.barren + 1
        if loss.was is LifeState.STARTING:
            seat.failed_starts += 1
        if seat.state is not SeatState.OPEN:
            return
        if self.plan.source is Source.STREAMS:
            self._lose_stream(loss)
            return
        for place, ticket in enumerate(loss.tickets):
            # A life works on its oldest ticket; the others, and all of a life that never came
            # up, are innocent and lose no attempt.
            suspect = place == 0 and loss.was is not LifeState.STARTING
            if not suspect:
                self._ledger.hand_out_again(ticket, attempt=ticket.attempt)
                continue
            fault = self._fault(loss, loss.kind, ticket)
            self._note(fault)
            verdict = judge(loss.kind, ticket.attempt, self.plan.limits.attempts)
            if verdict is Verdict.RETRY:
                self._ledger.hand_out_again(ticket, attempt=ticket.attempt + 1)
            else:
                self._ledger.fail(ticket, fault)

    def _lose_stream(self, loss: Loss) -> None:
        """Raise once, in turn, that a stream broke off; void what was asked of it beyond that."""
        first = loss.tickets[0] if loss.tickets else None
        fault = self._fault(loss, FaultKind.STREAM_LOST, first)
        self._note(fault)
        self._ledger.fail(first, fault)
        for ticket in loss.tickets[1:]:
            self._ledger.window.void(ticket.position)
        self._seats.move(loss.seat, SeatCue.LOSE)

    def _fault(self, loss: Loss, kind: FaultKind, ticket: Ticket | None) -> Fault:
        return Fault(
            kind=kind,
            seat=loss.seat.number,
            life=loss.life.number,
            ticket=ticket,
            ending=loss.ending,
            delivered=self._delivered,
        )

    def _staff(self, seat: Seat, loss: Loss | None, now: float, out: Out) -> None:
        """Give an open seat without a life a new one, if there is work and budget for it."""
        limits = self.plan.limits
        if seat.life is not None or seat.state is not SeatState.OPEN:
            return
        if self._sampling is Sampling.ENDED and not self._ledger.pending:
            return
        spent: FaultKind | None = None
        if seat.failed_starts >= limits.failed_starts:
            spent = FaultKind.NEVER_STARTED
        elif seat.barren >= limits.barren_lives:
            spent = FaultKind.BUDGET_SPENT
        if spent is not None:
            self._seats.move(seat, SeatCue.LOSE)
            if loss is not None and not self._seats.loadable:
                self._break(self._fault(loss, spent, None), now, out)
        elif seat.barren > 1:
            rest_s = min(limits.rest_max_s, limits.rest_s * 2 ** (seat.barren - 2))
            self._seats.move(seat, SeatCue.REST)
            self._deadlines.set((DeadlineKind.REST, seat.number, -1), now + rest_s)
        else:
            self._start(seat, now, out)

    def _break(self, fault: Fault, now: float, out: Out) -> None:
        """End the run: nobody is left to load anything."""
        self._note(fault)
        self._run = Run.BROKEN
        self._stopped_by = fault
        for seat in self._seats.all:
            self._stop(seat, now, out)

    def _note(self, fault: Fault) -> None:
        self._faults.append(fault)
        self._faults_seen += 1

    # ---- time -------------------------------------------------------------------------------

    def _on_clock_rang(self, event: ev.ClockRang, now: float, out: Out) -> None:
        while (key := self._deadlines.pop_due(now)) is not None:
            kind, number, _ = key
            if kind is DeadlineKind.LOOP:
                self._time_out(now, out)
                continue
            seat = self._seats.all[number]
            if kind is DeadlineKind.REST:
                self._seats.move(seat, SeatCue.REOPEN)
                self._start(seat, now, out)
            elif kind in (DeadlineKind.START, DeadlineKind.TICKET):
                self._replace(seat, now, out)
            else:
                self._press(key, now, out)
        self._go_on(now, out)

    def _time_out(self, now: float, out: Out) -> None:
        """Tell the loop that its own patience is over; the work goes on."""
        if self._loop is not Loop.WAITING:
            return
        due = self._ledger.window.due()
        fault = Fault(FaultKind.TIMEOUT, delivered=self._delivered, seconds=now - self._asked_at)
        for seat in self._seats.all:
            for ticket, _ in () if seat.life is None else seat.life.held.values():
                if ticket.position == due and seat.life is not None:
                    fault = replace(fault, seat=seat.number, life=seat.life.number, ticket=ticket)
        self._note(fault)
        self._loop_leaves()
        out.append(do.RaiseFault(fault))

    def _replace(self, seat: Seat, now: float, out: Out) -> None:
        """Condemn a life that keeps everyone waiting and go on without waiting for its end."""
        life = seat.life
        if life is None or life.state not in EMPLOYED:
            return
        tickets = tuple(ticket for ticket, _ in life.held.values())
        loss = Loss(seat, life, life.state, tickets, FaultKind.HANG, None)
        for lease in life.leases():
            self._ledger.leases.quarantine(lease)
        life.orphans = life.leases()
        life.held.clear()
        life.move(LifeCue.CONDEMN)
        seat.life = None
        self._dying[seat.number, life.number] = life
        self._deadlines.clear((DeadlineKind.START, seat.number, life.number))
        self._deadlines.clear((DeadlineKind.TICKET, seat.number, life.number))
        self._kill(seat.number, life, now, out)
        self._recover(loss)
        self._staff(seat, loss, now, out)

    def _press(self, key: Key, now: float, out: Out) -> None:
        """Use the next harder means against a life that does not leave."""
        kind, number, life_number = key
        seat = self._seats.all[number]
        life = self._dying.get((number, life_number)) or seat.life
        if life is None or life.number != life_number:
            return
        if kind is DeadlineKind.STOP:
            life.move(LifeCue.CONDEMN)
            harder = (DeadlineKind.TERMINATE, number, life_number)
            self._deadlines.set(harder, now + self.plan.limits.terminate_s)
            out.append(do.KillLife(number, life_number, do.Force.TERMINATE))
        elif kind is DeadlineKind.TERMINATE:
            self._kill(number, life, now, out)
        else:
            self._abandon(seat, life, out)

    def _kill(self, seat: int, life: Life, now: float, out: Out) -> None:
        key = (DeadlineKind.KILL, seat, life.number)
        self._deadlines.set(key, now + self.plan.limits.kill_s)
        out.append(do.KillLife(seat, life.number, do.Force.KILL))

    def _abandon(self, seat: Seat, life: Life, out: Out) -> None:
        """Go on without a life that the kernel cannot end, and without the room it may write to."""
        for lease in life.leases():
            self._ledger.leases.retire(lease)
        life.held.clear()
        life.orphans.clear()
        self._dying.pop((seat.number, life.number), None)
        if seat.life is life:
            seat.life = None
        life.move(LifeCue.END)
        out.append(do.AbandonLife(seat.number, life.number))
