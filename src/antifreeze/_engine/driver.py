"""The shell around the core: performs commands, reports events, hands batches to the loop.

1. Every start, send, kill and delivery is a command of the supervisor; nothing happens beside it.
2. `next` pumps in the caller's own thread. Other threads may call `close`, and `look_after` while
   the loop is away; a lock in this process keeps them apart, and whoever waits inside `next` is
   woken by a close.
3. If anything unforeseen (Ctrl-C included) strikes between two steps, the iterator is over: what
   was decided may not have been done. Striking while it waits is harmless.
"""

from __future__ import annotations

import os
import threading
from collections import deque
from collections.abc import Iterator, Sequence
from dataclasses import replace
from functools import partial
from typing import Any

from .._core import commands as do
from .._core import events as ev
from .._core.faults import Ending
from .._core.inspection.state_snapshots import snapshot_in_passing
from .._core.loader_plan import Plan
from .._core.states import Run, State
from .._core.supervisor import Supervisor
from .._linux.clock import Clock
from .._loading.observations import Observation, StreamCarry, StreamPrint, StreamState
from .._processes.backend_protocol import Backend, Notice
from .._reporting.current_wait_cause import so_far
from .._reporting.fault_log import LoaderFaults
from .._reporting.loader_snapshot import DriverSnapshot
from .._reporting.reporter import Reporter, Sift
from .._reporting.torch_pitfalls import TorchPitfalls
from .._reporting.wait_causes import Waits
from .._reporting.wait_totals import Accounts
from .._worker.worker_spec import EpochBrief
from ..errors import InternalError, LoaderClosed
from ..policies import raising
from .delivery import Answer, Delivery
from .loop_abandonment import LoopAbandonment
from .parcel_queue import ParcelQueue
from .sampler_draws import SamplerReader
from .step_timer import OpenWait, StepTimer
from .worker_commands import WorkerCommands
from .worker_watchdog import Watchdog

_LOOP_ASKED = ev.LoopAsked()
_LOOP_LEFT = ev.LoopLeft()
_CLOCK_RANG = ev.ClockRang()


class Phase(State):
    OPEN = "open"
    CLOSING = "closing"  # someone asked; whoever waits inside `next` leaves
    CLOSED = "closed"


class Driver:
    """Run one supervisor over one backend."""

    def __init__(
        self,
        plan: Plan,
        backend: Backend,
        clock: Clock,
        *,
        traps: TorchPitfalls | None = None,
        book: LoaderFaults | None = None,
        sift: Sift = lambda found: found,
        accounts: Accounts | None = None,
    ) -> None:
        self._limits = limits = plan.limits
        self.accounts = accounts or Accounts(limits=limits.records)
        self._waits = Waits(self.accounts)
        self._supervisor = Supervisor(plan, waits=self._waits)
        self.event_log = self._supervisor.event_log
        self._backend = backend
        self._now = clock.now
        self._owner = os.getpid()
        self._lock = threading.RLock()
        self._todo: deque[do.Command] = deque()
        self._parcels = ParcelQueue()
        self._ready = self._parcels.ready
        self._sampler_reader = SamplerReader(iter(()))
        self.absence = LoopAbandonment(limits.away)
        self._watchdog: Watchdog | None = None
        self._broke_while_away: Exception | None = None
        self._answer: Answer | None = None
        self._epochs = 0
        self._phase = Phase.OPEN
        self._whole = True  # no step is half done
        self._step_timer = StepTimer(self.accounts, plan.seats, limits.looks)
        self.turnstile = self._step_timer.turnstile
        self.traps = TorchPitfalls(plan.seats) if traps is None else traps
        self.book = LoaderFaults(raising()) if book is None else book
        self._reporter = Reporter(
            self._supervisor, backend, self.traps, self.book, self.accounts, sift
        )
        self._workers = WorkerCommands(plan, backend, self._reporter)
        self._delivery = Delivery(self._supervisor, backend, self._reporter, self.book)

    @property
    def supervisor(self) -> Supervisor:
        return self._supervisor

    @property
    def backend(self) -> Backend:
        return self._backend

    def workers(self) -> list[Any]:
        """Return the latest life of each seat, for others to look at."""
        unborn = any(worker.pid is None for worker in self._backend.workers())
        if unborn and self._lock.acquire(timeout=self._limits.closing.lock_s):
            try:
                self._backend.await_births()
            finally:
                self._lock.release()
        return self._backend.workers()

    @property
    def closed(self) -> bool:
        return self._phase is not Phase.OPEN

    @property
    def in_epoch(self) -> bool:
        return self.can_go_on and self._supervisor.run is Run.RUNNING

    @property
    def can_go_on(self) -> bool:
        """Whether another epoch can begin here."""
        if self.closed or os.getpid() != self._owner:
            return False
        if not self._whole:
            if not self._lock.acquire(timeout=self._limits.closing.lock_s):
                return True  # another thread is in the middle of a step: it is being used
            self._lock.release()
        return not self.closed and self._whole and self._supervisor.run is not Run.BROKEN

    def begin_epoch(
        self,
        sampler: Iterator[Any],
        seed_base: int,
        shared_seed: int | None,
        free_draws: int | None = None,
    ) -> float:
        """Begin an epoch: start what is not running, draw ahead. Raises what starting raised.
        Returns the seconds that the sampler took."""
        self._check_owner()
        with self._lock:
            self._enter()
            self._sampler_reader = SamplerReader(sampler)
            self._answer = None
            self._parcels.drop_ready()
            self._workers.brief = EpochBrief(self._epochs, seed_base, shared_seed)
            began_at = self._now()
            self.turnstile.pause(began_at)
            event = ev.EpochAsked(self._epochs, seed_base, free_draws)
            self._epochs += 1
            self.traps.begin_epoch()
            try:
                if free_draws is None:  # else a sampler of the user's would run in between
                    self._backend.defer()
                self._step(event, began_at)
                self._backend.settle()
                if self._watchdog is None and (watch := self._backend.watch()) is not None:
                    self._watchdog = Watchdog(self, watch, self._limits)
                    self._watchdog.start()
            except BaseException:
                self.close()
                raise
            return self._step_timer.take_sampled()

    def next(self) -> Any:
        """Return the next batch. Raise StopIteration at the end of the epoch, or the error due."""
        if os.getpid() != self._owner:
            self._check_owner()
        with self._lock:
            if self._phase is not Phase.OPEN or not self._whole or self._broke_while_away:
                self._enter()
            came_at, raised = self._now(), False
            self.absence.come()
            asks = not self._ready
            opens_at: float | None = None if asks else came_at
            try:
                if asks:
                    opens_at = self._ask(came_at)
                self._whole = False  # an interrupted opening would lose this batch without a word
                batch = (
                    self._delivery.open(*self._ready.popleft())
                    if self._ready
                    else self._delivery.give(self._answer, self._sampler_reader.errors)
                )
                self._whole = True
            except Exception as error:
                raised = not isinstance(error, StopIteration)
                if opens_at is not None:
                    self._whole = True
                    if not raised:
                        self.turnstile.over()
                raise
            finally:
                left_at = self._now()
                self.absence.leave(left_at, raised=raised)
                if asks:
                    self._step_timer.left(came_at, opens_at, left_at)
                self.turnstile.count(came_at, left_at)
            return batch

    def _ask(self, now: float) -> float:
        """Ask the core, and pump until there is an answer. Return when it was decided."""
        self._answer = None
        self._step_timer.came(now)
        for event in self._backend.returns():
            self._step(event, now)
        self._step(_LOOP_ASKED, now)
        while not self._ready and self._answer is None:
            if self.closed:
                raise LoaderClosed("the loader was closed while its loop was waiting")
            self._turn()
        return self._step_timer.told_at

    def look_after(self) -> None:
        """See to what cannot wait for the loop: deaths, and messages half sent. In the
        thread of `worker_watchdog`."""
        if not self._lock.acquire(blocking=False):
            return  # the loop is there
        try:
            if self.can_go_on:
                self._whole = False
                for_good = self.absence.is_for_good(self._now())
                if self.closed:
                    return  # the question was the last to hold the iterator
                if for_good:
                    self._backend.wait(0.0)  # for what workers have brought: they may go then
                else:
                    self._backend.poll_urgent()
                if notices := self._backend.collect():
                    self._step(_LOOP_LEFT, self._now())
                    self._tell(notices, self._now())
                if for_good:
                    self._step(ev.LoopLeft(for_good=True), self._now())
                if self._limits.look_s is not None:
                    self._step(self._look_around(), self._now())
                self._whole = True
                self._step_timer.see_usage(self._now(), self._backend.usage)
                self._reporter.tell_trends()
        except Exception as error:  # `next` raises it: nobody looks at what a thread writes
            self._broke_while_away = error
        finally:
            self._lock.release()

    def close(self) -> None:
        """End all lives, by force if need be; bounded. May be called again, from any thread."""
        if self._phase is Phase.CLOSED or os.getpid() != self._owner:
            return
        self._phase = Phase.CLOSING
        self._backend.wake()
        watchdog, self._watchdog = self._watchdog, None
        if watchdog is not None:
            watchdog.close()
        if not self._lock.acquire(timeout=self._limits.closing.lock_s):
            return  # whoever is inside leaves when it comes back; the workers go with the program
        interrupt: KeyboardInterrupt | None = None
        try:
            for _ in range(self._limits.closing.tries):
                try:
                    if self._phase is not Phase.CLOSED:
                        self._finish_closing()
                    break
                except KeyboardInterrupt as error:  # nobody else will end the workers: go on
                    interrupt = error
                except Exception:
                    self._phase = Phase.CLOSED
                    self._backend.close()
                    raise
            else:
                self._backend.close()
        finally:
            self._lock.release()
        if interrupt is not None:
            raise interrupt

    def _finish_closing(self) -> None:
        if self._supervisor.run is not Run.CLOSED:
            never_started = [c for c in self._todo if isinstance(c, do.StartLife)]
            self._todo.clear()
            self._perform_all(self._supervisor.handle(ev.CloseAsked(), self._now()))
            for start in never_started + self._workers.failed_starts:
                event = ev.LifeEnded(start.seat, start.life, Ending(words="it never started"))
                self._perform_all(self._supervisor.handle(event, self._now()))
        limits = self._limits
        longest_s = (
            limits.stop_idle_s + limits.terminate_s + limits.kill_s + limits.closing.margin_s
        )
        give_up = self._now() + longest_s
        while not self._supervisor.at_rest and self._now() < give_up:
            self._turn()
        self._parcels.drop_all()
        self.turnstile.fold(self._now())
        self._backend.close()
        self._sampler_reader = SamplerReader(iter(()))
        self._phase = Phase.CLOSED

    def snapshot(self) -> DriverSnapshot:
        """Return the state as frozen data; from any thread, without waiting for the loop."""
        supervisor = snapshot_in_passing(self._supervisor)
        progress = supervisor.progress  # of the loop: what waits here it has yet to receive
        received = replace(progress, delivered=progress.delivered - len(self._ready))
        supervisor = replace(supervisor, progress=received)
        self.settle()
        return DriverSnapshot.of(supervisor, self.accounts)

    def __repr__(self) -> str:
        return f"<Driver {self._phase.value}, {self._supervisor!r}>"

    # ---- one step ---------------------------------------------------------------------------

    def _check_owner(self) -> None:
        """Refuse a forked child. Before any lock: another thread may have held it at the fork."""
        if os.getpid() != self._owner:
            raise LoaderClosed(
                "this iterator belongs to another process (it was made before a fork); call"
                " iter() on the loader in this process"
            )

    def _enter(self) -> None:
        if self.closed:
            raise LoaderClosed("this iterator was closed; call iter() on the loader for a new one")
        if self._broke_while_away is not None:
            self.close()
            raise InternalError("looking after the workers failed") from self._broke_while_away
        if not self._whole:
            self.close()
            raise LoaderClosed("this iterator was interrupted in the middle of a step")

    def _step(self, event: ev.Event, now: float) -> None:
        """Tell the core one event and do all it asks for."""
        self._whole = False
        self._perform_all(self._supervisor.handle(event, now))
        self._whole = True

    def _turn(self) -> None:
        """Wait for something to happen, at most until the next deadline, and act on it."""
        wakeup = self._supervisor.next_wakeup()
        self._backend.wait(None if wakeup is None else max(0.0, wakeup - self._now()))
        self._whole = False  # what is collected is told, or the iterator is over
        notices, now = self._backend.collect(), self._now()
        self._step_timer.told_at = now
        self._tell(notices, now)
        if wakeup is not None and now >= wakeup:
            self._step(_CLOCK_RANG, now)

    def _tell(self, notices: Sequence[Notice], now: float) -> None:
        """Tell the core what has happened, and do what it asks for."""
        self._whole = False
        for notice in notices:
            if notice.parcels:
                self._parcels.take(notice.parcels)
            if notice.seen is not None:
                self._notice(*notice.seen)
            if notice.event is not None:
                # What the one before led to may have taken its time, in the sampler.
                now = max(now, self._step_timer.told_at)
                self._perform_all(self._supervisor.handle(notice.event, now))
        for event in self._backend.returns():
            self._perform_all(self._supervisor.handle(event, now))
        self._whole = True
        self._reporter.tell_faults(quiet=self.closed)

    def _notice(self, seat: int, seen: Observation) -> None:
        if not isinstance(seen, StreamState | StreamCarry | StreamPrint):
            self._reporter.noticed(seat, seen)
        elif (marked := self._workers.note_stream(seat, seen)) is not None:
            self._perform_all(self._supervisor.handle(marked, self._now()))

    def _perform_all(self, commands: Sequence[do.Command]) -> None:
        todo = self._todo
        todo.extend(commands)
        while todo:
            self._perform(todo.popleft())

    def _perform(self, command: do.Command) -> None:
        match command:
            case do.SendTickets():
                self._backend.send(command.seat, command.life, command.errands)
            case do.DrawTickets():
                self._draw(command.count)
            case do.Deliver():
                self._parcels.release(command.errands, copied=command.copied)
            case do.RaiseFault() | do.FinishEpoch():
                self._answer = command
            case do.DropParcel():
                self._parcels.drop(command.number)
            case do.StartLife():
                if (ended := self._workers.start(command)) is not None:
                    self._hear(ended)
            case do.LookAround():
                self._hear(self._look_around())
                self._step_timer.see_usage(self._now(), self._backend.usage)
                self._reporter.tell_trends()
            case do.ExamineLife(seat=seat, life=life):
                self._hear(ev.LifeExamined(seat, life, self._backend.examine(seat, life)))
            case _:
                self._workers.perform(command)

    def _hear(self, answer: ev.Event) -> None:
        """Tell the core the answer to a command; what follows from it is done in its turn."""
        now = self._now()
        if not self._ready and self._answer is None:
            self._step_timer.told_at = now
        self._todo.extend(self._supervisor.handle(answer, now))

    def _look_around(self) -> ev.LivesSeen:
        sights = tuple(self._backend.look())
        self.accounts.note_memory(max((each.own_bytes for each in sights), default=0))
        return ev.LivesSeen(sights, self._backend.room())

    def settle(self) -> OpenWait | None:
        """Put all that was counted into the accounts. Return the wait that is not over."""
        self.turnstile.fold(now := self._now())
        open_wait = self._step_timer.open_wait(now, partial(so_far, self._supervisor, self._waits))
        if not self.closed and self._lock.acquire(blocking=False):
            try:
                self._step_timer.see_usage(now, self._backend.usage)
            finally:
                self._lock.release()
        return open_wait

    def _draw(self, count: int) -> None:
        event, took_s = self._sampler_reader.draw(count, self._now)
        if took_s is not None:
            answered = bool(self._ready) or self._answer is not None
            self._step_timer.sampled(took_s, answered=answered)
        self._hear(event)
