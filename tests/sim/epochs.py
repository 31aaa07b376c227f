"""Whole epochs of faults through the real supervisor, on virtual time, from a seed.

One seed is one loader: its plan, the pace of its workers, two epochs with at least five faults
each, and its close. Everything is drawn from one generator, so a seed that fails fails again
(`replay.py`).
"""

from __future__ import annotations

import heapq
import random
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

from antifreeze._core import commands as do
from antifreeze._core import events as ev
from antifreeze._core.faults import Ending
from antifreeze._core.health.stall_detection import Sight
from antifreeze._core.health.worker_phases import OURS, SAMPLE
from antifreeze._core.limits import LIMITS
from antifreeze._core.loader_plan import Source
from antifreeze._core.slab_leases import LeaseKey
from antifreeze._core.supervisor import Supervisor
from antifreeze._core.tickets import Errand

from .books import BATCH, Books, Broken, expect
from .lives import Mood, Worker
from .plans import plan_of
from .trouble import MOST_BYTES, Trouble

EPOCHS = 2  # of a loader
TICKETS = 50  # an epoch, at least
# Of an epoch; a long hang with a look a second takes a tenth of it.
MOST_EVENTS = 20_000
LATE_S = 100.0  # after a close, until nothing more can come of those who were abandoned
KILLED, LEFT = Ending(signal=9), Ending(exit_code=0)
ASK, RANG, AWAY = ev.LoopAsked(), ev.ClockRang(), ev.LoopLeft()


@dataclass(frozen=True)
class Account:
    """What one epoch came to."""

    tickets: int
    faults: tuple[str, ...]
    events: int
    virtual_s: float
    whole: bool  # it was not broken off, and no fault ended the run


class Simulation:
    """One loader: its supervisor, its workers, its loop and its clock."""

    def __init__(
        self,
        seed: int,
        make: Callable[..., Supervisor] = Supervisor,
        *,
        checked: bool = False,
        whole_log: bool = False,
    ) -> None:
        self.dice = random.Random(seed)
        self.plan = plan_of(self.dice, whole_log=whole_log)
        self.now = 1000.0
        self.checked = checked  # after every event
        self.books = Books(self.plan)
        self.sup = make(self.plan)
        self.workers: dict[tuple[int, int], Worker] = {}
        self.departed: list[Worker] = []
        self.waiting = False  # the loop is inside `next`
        self.running = False  # it has not heard of the end of its epoch
        self.closing = False
        self.events = 0
        # As with real processes, what happens while the loop is away is told when it asks.
        self.told_at_once = self.dice.random() < 0.3
        self.tiny = self.plan.longest_bundle > 1 and self.dice.random() < 0.7  # batches
        if self.tiny and self.dice.random() < 0.5:  # as an epoch before has left it
            self.sup._bundles.tickets = min(8, self.plan.longest_bundle)
            self.sup._bundles._each_s = LIMITS.bundles.load_s / 8
        self.think_s = self.dice.choice((0.0, 0.0, 0.01))
        self.looks_back = self.dice.choice((0, 1, 2, 100))  # batches the loop holds on to
        self._agenda: list[tuple[float, int, Callable[..., None], tuple[Any, ...]]] = []
        self._serial = 0
        self._notices: list[ev.Event] = []
        self._sampler_says: ev.Event | None = None
        self.trouble = Trouble(self)
        self._do: dict[type, Callable[[Any], Any]] = {
            do.DrawTickets: self._draw,
            do.StartLife: self._start,
            do.BeginEpoch: self._begin,
            do.SendTickets: self._send,
            do.StopLife: self._stop,
            do.KillLife: self._kill,
            do.ExpectTurn: lambda command: None,
            do.ReportLate: lambda command: None,  # words
            do.LookAround: lambda command: self.handle(self.sights()),
            do.ExamineLife: self._examine,
            do.ResumeLife: self._resume,
            do.ReportStall: self.trouble.reported,
            do.ReportGrowth: self._grown,
            do.ReleaseLock: lambda command: None,  # whoever waits there is stuck for other reasons
            do.AbandonLife: self._abandon,
            do.DropParcel: lambda command: self.books.parcels.pop(command.number, None) and None,
            do.Deliver: self._deliver,
            do.RaiseFault: self._raise,
            do.FinishEpoch: self._finish_epoch,
        }

    # ---- time -------------------------------------------------------------------------------

    def later(self, delay_s: float, action: Callable[..., None], *args: Any) -> None:
        self._serial += 1
        heapq.heappush(self._agenda, (self.now + delay_s, self._serial, action, args))

    def run(self, until: Callable[[], bool], within_s: float) -> None:
        """Let things happen until something is so. It must become so in time."""
        agenda, trouble, next_wakeup = self._agenda, self.trouble, self.sup.next_wakeup
        last, latest = self.events + MOST_EVENTS, self.now + within_s
        while not until():
            now = self.now
            if self.events > last or now - trouble.paused_s > latest:
                spent_s = now - trouble.paused_s - latest + within_s
                raise Broken(f"no end after {spent_s:.0f} s: {self.sup.snapshot()}")
            # Between two calls of `next` nobody looks at the clock.
            pumped = self.waiting or self.closing or self.told_at_once
            wakeup = next_wakeup() if pumped else None
            if agenda and (wakeup is None or (at := agenda[0][0]) <= wakeup or at <= now):
                at, _, action, args = heapq.heappop(agenda)
                if at > now:
                    self.now = at
                action(*args)
            elif wakeup is not None:
                self.now = max(self.now, wakeup)
                self.feed(RANG)
            else:
                raise Broken(f"frozen: {self.sup.snapshot()}")

    # ---- telling and doing ------------------------------------------------------------------

    def handle(self, event: ev.Event) -> Any:
        self.events += 1
        commands = self.sup.handle(event, self.now)
        if self.checked:
            unsound = list(self.sup.check())
            expect(not unsound, f"after {event}: {unsound}")
        return commands

    def feed(self, event: ev.Event) -> None:
        """Tell the supervisor something and do all that it asks for."""
        if type(event) is ev.ParcelsArrived:
            sender = self._find(event.seat, event.life)
            self.books.arrive(sender, event.numbers, event.outcome, event.in_slab)
        elif type(event) is ev.LifeEnded:
            worker = self._find(event.seat, event.life)
            if worker.counts and self.running:
                self.books.lose(worker)
            worker.end_told = True
        elif type(event) is ev.EpochBegun:
            self._find(event.seat, event.life).began = event.epoch
        commands = self.handle(event)
        if not commands:
            return
        todo = list(commands)
        for command in todo:  # what these lead to comes after them
            more = self._do[type(command)](command)
            if more:
                todo += more

    def tell(self, event: ev.Event) -> None:
        """Tell it now, or when the loop comes back."""
        if self.waiting or self.closing or self.told_at_once:
            self.feed(event)
        else:
            self._notices.append(event)

    def tell_notices(self) -> None:
        notices, self._notices = self._notices, []
        for event in notices:
            self.feed(event)

    def _find(self, seat: int, life: int) -> Worker:
        worker = self.workers.get((seat, life))
        if worker is None:
            worker = next(w for w in reversed(self.departed) if w.key == (seat, life))
        return worker

    # ---- the loop ---------------------------------------------------------------------------

    def ask(self) -> None:
        if self.running and not self.waiting and not self.closing:
            self._give_back(self.looks_back)
            self.waiting = True
            self.feed(ASK)
            self.tell_notices()

    def _give_back(self, most: int) -> None:
        if len(self.books.kept) <= most:
            return
        kept = list(self.books.kept)
        keys: tuple[LeaseKey, ...] = tuple(kept[: len(kept) - most])
        for key in keys:
            self.books.give_back(key)
        self.feed(ev.LeasesReturned(keys))

    def leave_alone(self) -> None:
        """Let somebody else tell what happens, while the loop is away."""
        if not self.waiting and not self.closing:
            self.feed(AWAY)
            self.tell_notices()
            self.feed(self.sights())

    def _goes(self, batches: int = 1) -> None:
        expect(self.waiting, "an answer although nobody asked")
        self.waiting = False
        if self.running:
            self.later(self.trouble.away_s() + self.think_s * batches, self.ask)

    def _deliver(self, command: do.Deliver) -> None:
        self.books.deliver(command)
        self._goes(len(command.numbers))

    def _raise(self, command: do.RaiseFault) -> None:
        if self.books.hear(command.fault):
            self.running = False
        self._goes()

    def _finish_epoch(self, command: do.FinishEpoch) -> None:
        expect(self.running, "an epoch ends twice")
        self.running = False
        self._goes()

    def _draw(self, command: do.DrawTickets) -> Any:
        says, self._sampler_says = self._sampler_says, None
        if says is not None:
            return self.handle(says)
        books, trouble = self.books, self.trouble
        if trouble.sampler_fails():
            books.sampler_failed += 1
            return self.handle(ev.SamplerFailed())
        count = min(command.count, trouble.batches - books.drawn)
        if count == 0:
            return self.handle(ev.SamplerEnded())
        first = books.drawn * BATCH
        books.drawn += count
        places = range(first, first + BATCH * count, BATCH)
        return self.handle(ev.TicketsDrawn(tuple([*range(at, at + BATCH)] for at in places)))

    # ---- lives ------------------------------------------------------------------------------

    def _start(self, command: do.StartLife) -> None:
        expect(not self.closing, "a start after the close")
        worker = Worker(command.seat, command.life, command.epoch, given=command.past)
        if worker.key in self.workers:
            raise Broken(f"{command}: it is there")
        self.books.go_on(worker)
        self.workers[worker.key] = worker
        if not self.trouble.spoils_start(worker):
            self.later(self.dice.uniform(0.001, 0.2), self.come_up, worker)

    def come_up(self, worker: Worker) -> None:
        if worker.gone:
            return
        worker.up = True
        self.tell(ev.LifeReady(*worker.key))
        if self.trouble.spoils_epoch(worker):
            return
        self._begun(worker, worker.epoch)

    def _begin(self, command: do.BeginEpoch) -> None:
        worker = self._alive(command)
        worker.inbox.clear()  # what is left of the epoch before
        worker.inbox.append(command)
        self.take_up(worker)

    def _begun(self, worker: Worker, epoch: int) -> None:
        if worker.gone:
            return
        worker.preparing = False
        if self.plan.source is Source.STREAMS:
            self.tell(ev.StreamMarked(worker.key[0], can_resume=self.plan.resumes))
        self.tell(ev.EpochBegun(*worker.key, epoch))
        if worker.leaving:
            self.end(worker, LEFT)
        else:
            self.take_up(worker)

    def _send(self, command: do.SendTickets) -> None:
        worker = self._alive(command)
        for errand in command.errands:
            self.books.send(worker, errand)
            worker.inbox.append(errand)
        self.take_up(worker)

    def take_up(self, worker: Worker) -> None:
        """Let a worker that is idle begin what it was sent first."""
        if not worker.inbox or worker.busy or worker.gone or not worker.idle:
            return
        first = worker.inbox.popleft()
        if isinstance(first, do.BeginEpoch):
            worker.preparing, worker.given = True, 0
            self.later(0.001, self._begun, worker, first.epoch)
            return
        errands = [first]
        while self.tiny and worker.inbox and len(errands) < 8:
            if not isinstance(worker.inbox[0], Errand):
                break
            errands.append(worker.inbox.popleft())
        worker.busy, worker.step = tuple(errands), SAMPLE
        for errand in errands:
            self.books.sent[errand.ticket.number].cell[0] = errand.ticket.number
        if not self.trouble.strikes(worker):
            load_s = 1e-5 * len(errands) if self.tiny else 0.001 + 0.02 * self.dice.random()
            self.later(load_s, self.finish, worker, load_s)

    def finish(self, worker: Worker, work_s: float = 1.0, *, failed: bool = False) -> None:
        """Let a worker bring what it has loaded, and go on."""
        if worker.gone or not worker.busy:
            return
        errands, worker.busy, worker.step = worker.busy, (), OURS
        if self.plan.source is Source.STREAMS:
            room = max(0, self.trouble.stream_length - worker.given)
            loaded, beyond = errands[:room], errands[room:]
            for errand in loaded:
                self.books.items[errand.ticket.number] = worker.given
                worker.given += 1
        else:
            loaded, beyond = errands, ()
        outcome = ev.Outcome.FAILED if failed else ev.Outcome.LOADED
        for group in [loaded] if outcome is ev.Outcome.LOADED else [(each,) for each in loaded]:
            if group:
                self.bring(worker, group, outcome, work_s)
        for errand in beyond:
            self.bring(worker, (errand,), ev.Outcome.ENDED, None)
        if worker.leaving:
            self.end(worker, LEFT)
        else:
            self.take_up(worker)

    def bring(
        self, worker: Worker, errands: tuple[Errand, ...], outcome: ev.Outcome, work_s: float | None
    ) -> None:
        numbers = tuple([errand.ticket.number for errand in errands])
        slab = outcome is ev.Outcome.LOADED and numbers[0] % 3 == 0
        size = 4096 * len(numbers) if slab else 0
        event = ev.ParcelsArrived(*worker.key, numbers, outcome, work_s, slab, size)
        self.tell(event)
        if self.trouble.sends_twice():
            self.tell(event)

    def end(self, worker: Worker, ending: Ending, said: int | None = None) -> None:
        if worker.gone:
            return
        worker.gone = True
        del self.workers[worker.key]
        self.departed.append(worker)
        self.tell(ev.LifeEnded(*worker.key, ending, said))

    def _stop(self, command: do.StopLife) -> None:
        worker = self._alive(command)
        worker.leaving = True
        if worker.up and not worker.busy and worker.mood is Mood.WELL and not worker.preparing:
            self.later(0.002, self.end, worker, LEFT)

    def _kill(self, command: do.KillLife) -> None:
        worker = self._alive(command)
        unfit = bool(command.unfit) and worker.unfit
        if worker.killed is do.Force.KILL or not (worker.doomed or worker.leaving or unfit):
            raise Broken(f"{command}: there is no reason to, {worker}")
        if worker.counts and self.running and not command.unfit:  # else nothing is lost by it
            self.books.lose(worker)
        worker.killed = command.force
        if command.unfit:  # all the others go as well
            for other in list(self.workers.values()):
                if other is not worker and other.killed is None:
                    other.doomed = True
                    self.later(0.005, self.end, other, Ending(words="made anew", told=True), 0)
        if worker.immortal:
            return
        if worker.brings_late and worker.busy:
            self.later(0.0005, self.finish, worker)
        self.later(self.dice.uniform(0.001, 0.1), self.end, worker, KILLED)

    def _abandon(self, command: do.AbandonLife) -> None:
        worker = self._alive(command)
        expect(worker.killed is do.Force.KILL, f"{command}: it was not killed")
        worker.gone = worker.end_told = True
        del self.workers[worker.key]
        self.departed.append(worker)

    def _resume(self, command: do.ResumeLife) -> None:
        worker = self._alive(command)
        expect(worker.mood is Mood.STOPPED, f"{command}: nobody has stopped it")
        if worker.cured_by_resuming:
            worker.mood = Mood.WELL
            worker.doomed = self.plan.limits.call_s is not None  # resumed, and too late at once
            self.later(0.01, self.finish, worker)

    def _alive(self, command: Any) -> Worker:
        """Give whom a command is for. He may have ended, and nobody has heard of it yet."""
        worker = self._find(command.seat, command.life)
        if worker.end_told:
            raise Broken(f"{command}: there is no such life")
        return worker

    # ---- looks ------------------------------------------------------------------------------

    def sights(self) -> ev.LivesSeen:
        return ev.LivesSeen(
            tuple(
                Sight(w.seat, w.life, w.busy[0].ticket.number if w.busy else 0, w.step, w.own_bytes)
                for w in self.workers.values()
            )
        )

    def _examine(self, command: do.ExamineLife) -> Any:
        worker = self.workers.get((command.seat, command.life))
        activity = None if worker is None else worker.activity(self.now)
        if self.dice.random() < 0.02:
            activity = None  # nothing could be seen
        return self.handle(ev.LifeExamined(command.seat, command.life, activity))

    def _grown(self, command: do.ReportGrowth) -> None:
        growth = command.growth
        worker = self.workers.get((growth.seat, growth.life))
        if worker is None or worker.own_bytes <= MOST_BYTES or growth.now != worker.own_bytes:
            raise Broken(f"{command}: it has not grown")
        expect(growth.goes != self.trouble.streams, f"{command}: nobody goes on with a stream")

    # ---- epochs -----------------------------------------------------------------------------

    def epochs(self) -> Iterator[Account]:
        """Run all epochs and the close; give an account of each epoch when it is over."""
        for epoch in range(EPOCHS):
            self.trouble.plan_epoch()
            self.books.open(epoch, self.trouble.stream_length)
            events, began = self.events, self.now
            self.running = True
            self._sampler_says = None
            self.feed(ev.EpochAsked(epoch, 7))
            self.later(0.0, self.ask)
            self.run(lambda: not self.running, self.trouble.patience_s())
            whole = not self.trouble.broken_off and self.books.broken_by is None
            self.books.close_epoch(whole=whole)
            self._expect_sound()
            tickets, faults = self.books.drawn, tuple(self.trouble.happened)
            yield Account(tickets, faults, self.events - events, self.now - began, whole)
            if self.books.broken_by is not None:
                break
            self._between()
        self._close()

    def _between(self) -> None:
        """Let the loop do something else before its next epoch."""
        until = self.now + self.dice.choice((0.0, 0.5, 8.0))
        self.trouble.between(until - self.now)
        self.later(until - self.now, lambda: None)
        self.run(lambda: self.now >= until, until - self.now + 1.0)

    def _close(self) -> None:
        self.closing, self.waiting = True, False
        self.feed(ev.CloseAsked())
        self.tell_notices()
        limits = self.plan.limits
        bound_s = limits.stop_idle_s + limits.terminate_s + limits.kill_s + 1.0
        self.run(lambda: self.sup.at_rest, bound_s)
        expect(self.sup.next_wakeup() is None, "a deadline is left, but nobody it could be for")
        expect(not self.workers, f"somebody is left: {list(self.workers)}")
        self.run(lambda: not self._agenda, LATE_S)  # what is on its way arrives, and is dropped
        expect(not self.books.parcels, f"nobody threw away {list(self.books.parcels)}")
        self._give_back(0)
        expect(not self.sup._ledger.kept, "slabs are kept that the loop gave back")
        self._expect_sound()

    def _expect_sound(self) -> None:
        unsound = list(self.sup.check())
        expect(not unsound, f"{unsound}")
