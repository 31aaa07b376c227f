"""The one that decides: what to draw, who loads it, who is replaced, what the loop receives.

1. `handle(event, now)` returns the commands to perform, in order. It never waits and never raises
   for what the world does: crashes, late messages and lies are events like any other.
2. Every position of an epoch is delivered once, raised once, or void; never twice, never lost.
3. A parcel counts only if its ticket's number is still held by the life that sent it.
4. `next_wakeup()` is the time of the next deadline; `ClockRang` is due at or after it.
5. `check()` yields what is unsound. It yields nothing, after every step.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any

from . import commands as do
from . import events as ev
from .assignment import TicketAssigner
from .bundling import BundleSize
from .deadlines import BatchTimeout, DeadlineKind
from .faults import Fault, FaultKind, FaultLog
from .health.health_checks import HealthChecks
from .health.stall_detection import Stall
from .inspection.event_log import EventLog
from .inspection.state_snapshots import SupervisorSnapshot, snapshot_supervisor
from .inspection.wait_observer import NoObserver, WaitObserver
from .loader_plan import Plan, Source, Tenure
from .parcels import ParcelIntake
from .recovery import Recovery
from .restarts import RestartBudget
from .states import Loop, Run, Sampling
from .ticket_tracking import Coming, Ledger
from .tickets import Progress
from .worker_lifecycle import Loss, Out, WorkerLifecycle
from .worker_slots import AT_WORK, NEVER, Life, LifeState, Seat, SeatCue, SeatState

LOOKS = frozenset({ev.LivesSeen, ev.LifeExamined})  # they would fill the event log


class Supervisor:
    """Turn events into commands. One for each iterator; not thread-safe; no I/O."""

    def __init__(
        self,
        plan: Plan,
        *,
        waits: WaitObserver | None = None,
    ) -> None:
        self.plan = plan
        self.event_log = EventLog(plan.limits.records.event_log_entries)
        self._record = self.event_log.record
        self._epoch = self._seed_base = self._delivered = 0
        self._run, self._loop = Run.IDLE, Loop.AWAY
        self._sampling = Sampling.MORE
        self._ledger = Ledger(plan)
        self._lifecycle = WorkerLifecycle(plan.seats, plan.limits, plan.leases_a_life)
        self._bundles = BundleSize(plan.longest_bundle, plan.limits.bundles)
        self._assigner = TicketAssigner(plan, self._lifecycle, self._ledger)
        self._seats = self._lifecycle.seats
        self._deadlines = self._lifecycle.deadlines
        self._batch_timeout = BatchTimeout(plan.timeout_s, self._deadlines)
        self._dying = self._lifecycle.dying
        self._stopped_by: Fault | None = None
        self._asked_at = 0.0
        self.faults = FaultLog(plan.limits.records.supervisor_faults)
        self._recovery = Recovery(plan, self._seats, self._ledger, self._bundles, self.faults)
        self._parcels = ParcelIntake(plan, self._lifecycle, self._ledger, self.faults)
        self._restarts = RestartBudget(plan.limits, self._lifecycle, self._recovery, self.faults)
        self._health = HealthChecks(plan, self._lifecycle, self._ledger)
        self._waits = waits or NoObserver()
        self._waits.attach(self._seats, self._ledger)
        self._on: dict[type, Callable[[Any, float, Out], None]] = {
            ev.EpochAsked: self._on_epoch_asked,
            ev.LoopAsked: self._on_loop_asked,
            ev.LoopLeft: self._on_loop_left,
            ev.TicketsDrawn: self._on_tickets_drawn,
            ev.SamplerEnded: self._on_sampler_ended,
            ev.SamplerFailed: self._on_sampler_failed,
            ev.LifeReady: self._on_life_ready,
            ev.EpochBegun: self._on_epoch_begun,
            ev.ParcelsArrived: self._on_parcels_arrived,
            ev.LeasesReturned: self._on_leases_returned,
            ev.ProgramForked: self._on_program_forked,
            ev.LifeEnded: self._on_life_ended,
            ev.LifeSilent: self._on_life_silent,
            ev.ForkUnfit: self._on_fork_unfit,
            ev.StreamMarked: self._recovery.stream_marked,
            ev.LivesSeen: self._on_lives_seen,
            ev.LifeExamined: self._on_life_examined,
            ev.ClockRang: self._on_clock_rang,
            ev.CloseAsked: self._on_close_asked,
        }

    # ---- seen from outside ------------------------------------------------------------------

    def handle(self, event: ev.Event, now: float) -> Sequence[do.Command]:
        """Take in one event. Return the commands it leads to: the event log's own list."""
        out: Out = []
        self._on[type(event)](event, now, out)
        if out or type(event) not in LOOKS or self.event_log.is_whole:
            self._record((now, event, out))
        return out

    def next_wakeup(self) -> float | None:
        return self._deadlines.next()

    @property
    def progress(self) -> Progress:
        """How far the loop has come: the value a later run goes on from."""
        return Progress(self._epoch, self._delivered, self._seed_base)

    @property
    def at_rest(self) -> bool:
        """Whether no life is left."""
        return not self._dying and not self._seats.living()

    @property
    def run(self) -> Run:
        return self._run

    def check(self) -> Iterator[str]:
        from .inspection import invariants

        return invariants.unsound(self)

    def snapshot(self) -> SupervisorSnapshot:
        return snapshot_supervisor(self)

    def __repr__(self) -> str:
        return (
            f"<Supervisor {self._run.value}, loop {self._loop.value}, epoch {self._epoch},"
            f" {self._delivered} delivered, {self._ledger.window.count} in the window,"
            f" {self.faults.seen} faults>"
        )

    # ---- the loop ---------------------------------------------------------------------------

    def _on_epoch_asked(self, event: ev.EpochAsked, now: float, out: Out) -> None:
        if self._run in (Run.CLOSED, Run.BROKEN):
            return
        self._forget_epoch(out)
        self._recovery.swallowed = 0
        self._epoch, self._delivered, self._seed_base = event.epoch, 0, event.seed_base
        self._lifecycle.epoch = event.epoch
        self._run, self._sampling = Run.RUNNING, Sampling.MORE
        self._recovery.losses.clear()
        self._bundles.reset(self.plan.longest_bundle, event.free_draws)
        self._loop_leaves()
        self._seats.rewind()
        for seat in self._seats.all:
            self._seats.move(seat, SeatCue.RENEW)
            self._restarts.renew(seat)
            seat.begin_epoch()
            self._lifecycle.begin_epoch(seat, now, out)
        self._go_on(now, out)

    def _on_loop_asked(self, event: ev.LoopAsked, now: float, out: Out) -> None:
        was_left = self._loop is Loop.LEFT
        self._loop, self._asked_at = Loop.WAITING, now
        self._waits.begin(now)
        if was_left:
            self._staff(self._seats.all, now, out)
        if self._batch_timeout.is_set:
            self._batch_timeout.arm(now)
        self._health.arm(now)
        self._go_on(now, out)

    def _on_loop_left(self, event: ev.LoopLeft, now: float, out: Out) -> None:
        if self._loop is Loop.AWAY:
            self._loop = Loop.LEFT
        if event.for_good and self._loop is Loop.LEFT:
            self._lifecycle.let_go(filter(self._recovery.can_go_on, self._seats.all), now, out)

    def _on_close_asked(self, event: ev.CloseAsked, now: float, out: Out) -> None:
        if self._run is Run.CLOSED:
            return
        self._run = Run.CLOSED
        self._forget_epoch(out)
        self._loop_leaves()
        self._health.rest()
        for seat in self._seats.all:
            self._seats.move(seat, SeatCue.CLOSE)
            self._restarts.cancel_rest(seat)
        self._lifecycle.stop_all(now, out)

    def _go_on(self, now: float, out: Out) -> None:
        """Do whatever can be done now: answer the loop, deal what was taken back, draw more."""
        if self.plan.source is Source.STREAMS:
            self._recovery.end_streams()
        if self._loop is Loop.WAITING and not self._must_wait():
            self._answer_loop(now, out)
        if self._ledger.pending and self._run is Run.RUNNING:
            self._deal_pending(now, out)
            if self.run is Run.BROKEN and self._loop is Loop.WAITING:
                self._answer_loop(now, out)
        if self._loop is Loop.WAITING:
            self._waits.look(now, more=self._sampling is not Sampling.ENDED)
        self._draw_ahead(out)

    def _must_wait(self) -> bool:
        """Whether there is no answer yet: nothing has arrived, but something may."""
        window = self._ledger.window
        if window.has_arrivals or self._run is not Run.RUNNING:
            return False
        return window.count > 0 or (self._sampling is not Sampling.ENDED and self._seats.loadable)

    def _answer_loop(self, now: float, out: Out) -> None:
        arrived = self._ledger.next_arrival()
        fault = self._ledger.take_fault()
        most = self._bundles.to_release(self.plan.window, self._delivered)
        errands, copied = ((), False) if fault else self._ledger.release(most)
        if errands or fault is not None:
            self._waits.end(now, arrived, fault=fault is not None)
            self._loop_leaves()
            self._delivered += len(errands) or 1
            out.append(do.Deliver(errands, copied) if fault is None else do.RaiseFault(fault))
        elif self._run is Run.BROKEN and self._stopped_by is not None:
            self._waits.end(now, None, fault=True)
            self._loop_leaves()
            out.append(do.RaiseFault(self._stopped_by))
        elif self._run is not Run.RUNNING:
            self._waits.end(now, None, fault=False)
            self._loop_leaves()
            out.append(do.FinishEpoch())
        elif not self._ledger.window.count:
            self._waits.end(now, None, fault=False)
            # Nothing is under way, and (see `_must_wait`) nothing will be.
            self._loop_leaves()
            self._run = Run.FINISHED
            if self.plan.tenure is Tenure.EPOCH:
                self._lifecycle.stop_all(now, out)
            out.append(do.FinishEpoch())

    def _loop_leaves(self) -> None:
        self._loop = Loop.AWAY
        if self._batch_timeout.is_set:
            self._batch_timeout.clear()

    def _forget_epoch(self, out: Out) -> None:
        """Take back every ticket. What is still on its way is orphaned and will be dropped."""
        for seat in self._seats.all:
            seat.undelivered = 0
            if self.plan.source is Source.STREAMS and self._run is not Run.IDLE:
                seat.leave_epoch(len(self._ledger.take_pending_of(seat.number)))
            if seat.life is not None:
                seat.life.orphan_tickets()
        out.extend(do.DropParcel(number) for number in self._ledger.forget())

    # ---- drawing and dealing ----------------------------------------------------------------

    def _draw_ahead(self, out: Out) -> None:
        """Ask the sampler for the next batch, or bundles of them, if the window has room."""
        if self._sampling is not Sampling.MORE or not self._may_start() or not self._seats.loadable:
            return
        window, most = self._ledger.window, max(1, self.plan.window - self._recovery.swallowed)
        count = self._bundles.to_draw(most, window.count, window.drawn)
        if count:
            self._sampling = Sampling.ASKED
            out.append(do.DrawTickets(count))

    def _on_tickets_drawn(self, event: ev.TicketsDrawn, now: float, out: Out) -> None:
        if self._sampling is not Sampling.ASKED:
            return
        self._sampling = Sampling.MORE
        self._waits.sampled(event.took_s)
        if self._run is not Run.RUNNING or not self._seats.loadable:
            return
        for indices in event.indices:
            self._assigner.deal(self._ledger.draw(self._epoch, indices), now)
        self._assigner.send(out)
        if self._ledger.pending:
            self._go_on(now, out)
        else:
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
        self.faults.note(fault)
        self._ledger.fail(None, fault)
        self._go_on(now, out)

    def _deal_pending(self, now: float, out: Out) -> None:
        if not any(seat.takes_tickets for seat in self._seats.all):
            self._staff(self._seats.all, now, out)
        self._assigner.deal_pending(now)
        self._assigner.send(out)

    # ---- parcels ----------------------------------------------------------------------------

    def _on_parcels_arrived(self, event: ev.ParcelsArrived, now: float, out: Out) -> None:
        seat, life = self._seats.present(event.seat, event.life)
        for number in event.numbers if life is None else ():
            self._parcels.drop_late(number, out)
        if life is not None:
            owed = len(life.held) + len(life.orphans)
            coming = Coming(event, life.last, seat.gap)
            if event.timings is not None:
                life.last = event.timings
            self._waits.came(seat, life, event)
            for number in event.numbers:
                if self._parcels.take(seat, life, number, coming, self._delivered, out):
                    self._recovery.end_streams()
            if len(life.held) + len(life.orphans) < owed:
                self._after_parcels(seat, life, event, now, out)
        self._go_on(now, out)

    def _after_parcels(
        self, seat: Seat, life: Life, event: ev.ParcelsArrived, now: float, out: Out
    ) -> None:
        """See that a life that brought something has its next task; adapt the size of bundles."""
        if life.state in AT_WORK:
            self._lifecycle.begin_work(life, now)
        if life.state is LifeState.RETIRING:
            self._lifecycle.retire(seat, life, now, out)
        if seat.state is SeatState.SPENT and self.plan.tenure is Tenure.EPOCH:
            self._lifecycle.stop(seat, now, out)
        if event.outcome is not ev.Outcome.LOADED:
            self._bundles.slow_down()
        elif event.work_s is not None:
            self._bundles.learn(event.work_s, len(event.numbers), event.slab_bytes)

    def _on_leases_returned(self, event: ev.LeasesReturned, now: float, out: Out) -> None:
        self._ledger.kept.take_back(event.leases)
        if self._ledger.pending:  # perhaps for want of a lease
            self._go_on(now, out)

    def _on_program_forked(self, event: ev.ProgramForked, now: float, out: Out) -> None:
        self._ledger.kept.spoil()

    # ---- lives ------------------------------------------------------------------------------

    def _on_life_ready(self, event: ev.LifeReady, now: float, out: Out) -> None:
        seat, life = self._seats.present(event.seat, event.life)
        if life is not None and life.state is not LifeState.SERVING:
            self._lifecycle.ready(seat, life, now)

    def _on_epoch_begun(self, event: ev.EpochBegun, now: float, out: Out) -> None:
        seat, life = self._seats.present(event.seat, event.life)
        if life is None or life.state not in AT_WORK:
            return
        seat.begun += self.plan.torch_draws and life.epoch == NEVER  # of whatever epoch
        if event.epoch != self._epoch:
            return
        life.epoch = event.epoch
        seat.failed_starts = 0
        for number in list(life.orphans):
            life.let_go(number)
        self._lifecycle.begin_work(life, now)
        self._go_on(now, out)

    def _on_life_ended(self, event: ev.LifeEnded, now: float, out: Out) -> None:
        seat = self._seats.all[event.seat]
        self._health.stalls.forget(event.seat, event.life)
        loss = self._lifecycle.ended(seat, event, now)
        if loss is not None and self._run is Run.RUNNING:
            if loss.was in AT_WORK:
                self._recover(loss)
            self._staff([seat], now, out)
        self._go_on(now, out)

    def _on_life_silent(self, event: ev.LifeSilent, now: float, out: Out) -> None:
        seat, life = self._seats.present(event.seat, event.life)
        if life is not None:
            self._lifecycle.silent(seat, life, now)

    def _on_fork_unfit(self, event: ev.ForkUnfit, now: float, out: Out) -> None:
        seat, life = self._seats.present(event.seat, event.life)
        if life is not None and self._recovery.may_turn():
            self._replace(seat, now, out, unfit=event.words)
            self._go_on(now, out)

    # ---- recovery ---------------------------------------------------------------------------

    def _staff(self, seats: Iterable[Seat], now: float, out: Out) -> None:
        """Have a life in each of these seats, while there is work for it and budget."""
        for seat in seats:
            if not self._may_start() or not self._has_work():
                return
            fault = self._restarts.restart(seat, self._delivered, now, out)
            if fault is not None:
                self._run, self._stopped_by = Run.BROKEN, fault
                self._lifecycle.stop_all(now, out)

    def _recover(self, loss: Loss) -> None:
        """Count a lost life against its seat, and decide about the tickets it held."""
        self._restarts.count(loss)
        self._recovery.recover(loss, self._delivered, self._epoch)

    # ---- time -------------------------------------------------------------------------------

    def _on_clock_rang(self, event: ev.ClockRang, now: float, out: Out) -> None:
        while (key := self._deadlines.pop_due(now)) is not None:
            kind, number, life = key
            seat = self._seats.all[number]  # of no meaning for the first two
            if self._batch_timeout.is_due(key):
                self._time_out(now, out)
            elif kind is DeadlineKind.LOOK:
                if self._loop is Loop.WAITING and self._run is Run.RUNNING:
                    self._health.look(now, out)
            elif kind is DeadlineKind.REST:
                self._seats.move(seat, SeatCue.REOPEN)
                if self._may_start() and self._has_work():
                    self._lifecycle.start(seat, now, out)
            elif kind in (DeadlineKind.START, DeadlineKind.SILENT):
                self._replace(seat, now, out)
            else:
                self._health.stalls.forget(number, life)  # nobody waits for its calls any more
                self._lifecycle.press(key, now, out)
        self._go_on(now, out)

    def _may_start(self) -> bool:
        return self._run is Run.RUNNING and self._loop is not Loop.LEFT

    def _has_work(self) -> bool:
        return self._sampling is not Sampling.ENDED or bool(self._ledger.pending)

    def _replace(
        self, seat: Seat, now: float, out: Out, stall: Stall | None = None, unfit: str = ""
    ) -> None:
        """Condemn the life of a seat and go on without waiting for its end. `unfit`: what it
        inherited and cannot live with; then all lives go, since they have inherited the same."""
        inherited = stall.activity.inherited if stall is not None and stall.is_inherited else None
        if inherited is not None and self._recovery.may_turn():
            unfit = inherited.words
        if seat.life is None or seat.life.state not in AT_WORK:
            return
        others = [each for each in self._seats.all if each is not seat]
        losses = []
        # All at once, so that none begins a stream that is about to begin anew.
        for each in [seat, *others] if unfit else [seat]:
            if each.life is not None and each.life.state in AT_WORK:
                self._health.stalls.forget(each.number, each.life.number)
                seen = stall if each is seat else None
                losses.append(self._lifecycle.condemn(each, each.life, now, out, seen, unfit))
        if self._run is Run.RUNNING:
            for loss in losses:
                self._recover(loss)
            self._staff([loss.seat for loss in losses], now, out)

    def _on_lives_seen(self, event: ev.LivesSeen, now: float, out: Out) -> None:
        since = self._asked_at if self._loop is Loop.WAITING else None
        self._health.seen(event, now, since, out)
        for growth in self._health.grown(event):
            out.append(do.ReportGrowth(growth))
            seat = self._seats.all[growth.seat]
            if growth.goes and seat.life is not None:
                self._lifecycle.retire(seat, seat.life, now, out)

    def _on_life_examined(self, event: ev.LifeExamined, now: float, out: Out) -> None:
        if self._loop is Loop.WAITING:
            stall = self._health.examined(event, now, self._asked_at, out)
            self._health.free_lock(now, out)
            if stall is not None:
                self._replace(self._seats.all[event.seat], now, out, stall)
                self._go_on(now, out)

    def _time_out(self, now: float, out: Out) -> None:
        """End a wait that torch's `timeout=` has ended; the work goes on."""
        if self._loop is not Loop.WAITING:
            return
        seconds = now - self._asked_at
        self._waits.end(now, None, fault=True)
        self._loop_leaves()
        out.append(self._recovery.time_out(seconds, self._delivered))
