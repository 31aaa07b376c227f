"""A model of a driver, with books of its own: it performs commands and doubts each of them.

It notices when the supervisor loses a batch, gives one twice, blames an innocent one, lends room
that somebody may still write to, speaks to the dead, or waits for nothing. What happens at all is
up to the world (`world.py`).
"""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Iterable

from antifreeze._core import commands as do
from antifreeze._core import events as ev
from antifreeze._core.faults import Ending, FaultKind
from antifreeze._core.health.stall_detection import Pulse, Sight
from antifreeze._core.health.worker_phases import OURS, SAMPLE
from antifreeze._core.limits import LIMITS
from antifreeze._core.loader_plan import Plan, Source, Tenure
from antifreeze._core.reorder import Order
from antifreeze._core.states import Run
from antifreeze._core.supervisor import Supervisor
from antifreeze._core.tickets import Errand, Ticket
from antifreeze._core.worker_slots import SeatState

from .slabs import LifeKey, Parcel, Slabs
from .workers import Worker

STOPPING_KINDS = (FaultKind.NEVER_STARTED, FaultKind.BUDGET_SPENT)


class Model:
    """Drive one supervisor and check each of its commands."""

    def __init__(self, plan: Plan, bundle: int = 1) -> None:
        """Give `bundle` for a pace that an earlier epoch of tiny batches has left behind."""
        self.plan = plan
        self.sup = Supervisor(plan)
        self.sup._bundles.tickets = min(bundle, plan.longest_bundle)
        self.sup._bundles._each_s = LIMITS.bundles.load_s / bundle
        self.now = 1000.0
        self.closed = False
        self.waiting = False  # the loop is inside `next`
        self.left = False  # ... or away, and somebody else tells what happens
        self.was_running = False  # when the last event came
        self.workers: dict[LifeKey, Worker] = {}
        self.departed: list[LifeKey] = []
        self.started: Counter[int] = Counter()  # lives of each seat
        self.failing_starts = 0  # so many of the next starts fail at once
        self.sent: dict[int, Ticket] = {}  # every ticket ever sent, by number
        self.parcels: dict[int, ev.Outcome] = {}  # what the driver keeps, by number
        self.sealed: dict[int, Parcel] = {}  # what waits for the loop, by number
        self.slabs = Slabs(plan.leases_a_life, plan.kept)
        self.replaced: dict[LifeKey, Sight] = {}  # for what was seen of them, and not yet killed
        self.seen: dict[LifeKey, Sight] = {}  # at the last look
        self.gift = (
            LIMITS.bundles.tickets * plan.window
        )  # what the sampler gives at a time, at most
        self._new_books(-1, 0, ())

    def _new_books(self, epoch: int, batches: int, failures: Iterable[int]) -> None:
        self.epoch = epoch
        self.batches = batches  # the sampler gives so many, then ends
        self.failures = set(failures)  # ... and raises when it is asked for these
        self.asked_of_sampler = 0
        self.sampler_ended = False
        self.over = epoch < 0  # the loop was told that the epoch is over
        self.drawn = 0  # positions
        self.answered: dict[int, str] = {}  # position -> what the loop got for it
        self.void: set[int] = set()
        self.blame: dict[int, list[int]] = {}  # position -> steps that lives were lost in
        self.sampler_faults: deque[int] = deque()  # positions
        self.stream_faults: dict[LifeKey, int] = {}  # broken while idle -> the fault's position
        self.lost_streams: set[int] = set()  # seats
        self.spared: dict[int, tuple[int, ...]] = {}  # position -> samples left to the policy
        self.slow = False  # a life was lost: one ticket at a time

    # ---- telling, and doing what is asked ---------------------------------------------------

    @property
    def broken(self) -> bool:
        return self.sup.run is Run.BROKEN

    def _running(self) -> bool:
        return self.sup._run is Run.RUNNING

    def _handle(self, event: ev.Event) -> list[do.Command]:
        self.was_running = self._running()
        commands = list(self.sup.handle(event, self.now))
        self._look_at_bundles(commands)
        if isinstance(event, ev.LifeExamined):
            self._look_at_verdict(event, commands)
        unsound = list(self.sup.check())
        assert unsound == [], f"after {event}: {unsound}"
        return commands

    def _feed(self, event: ev.Event) -> list[do.Command]:
        commands = self._handle(event)
        todo = deque(commands)
        while todo:
            self._perform(todo.popleft(), todo)
        self._look_for_a_freeze()
        return commands

    def _look_at_bundles(self, commands: list[do.Command]) -> None:
        """A seat has one message an event; after a loss nothing travels in company."""
        seats = Counter(c.seat for c in commands if isinstance(c, do.SendTickets))
        assert all(count == 1 for count in seats.values()), f"two messages to a seat: {commands}"
        for command in commands if self.slow else ():
            if isinstance(command, do.DrawTickets):
                assert command.count == 1, f"{command} although a life was lost"
            elif isinstance(command, do.Deliver):
                assert len(command.numbers) == 1, f"{command} although a life was lost"

    def _parcels(self, event: ev.ParcelsArrived) -> None:
        # What waits for the loop is not dropped: if this one does not count, another one does.
        idle = [number for number in event.numbers if number not in self.sealed]
        for number in event.numbers:
            self.parcels.setdefault(number, event.outcome)
        commands = self._feed(event)
        for number in idle:
            assert do.DropParcel(number) in commands, f"who throws away parcel {number}?"

    def _perform(self, command: do.Command, todo: deque[do.Command]) -> None:
        match command:
            case do.DrawTickets():
                todo.extend(self._draw(command.count))
            case do.StartLife():
                self._start(command, todo)
            case do.BeginEpoch() | do.SendTickets():
                self._send(command)
            case do.StopLife():
                worker = self._alive(command)
                assert worker.counts, f"{command}: it was asked before"
                worker.stopping = True
            case do.KillLife():
                self._kill(command)
            case do.AbandonLife():
                worker = self._alive(command)
                assert worker.killed is do.Force.KILL, f"{command}: it was not killed"
                del self.workers[worker.key]
                self.departed.append(worker.key)
            case do.ReportGrowth() | do.ReleaseLock() | do.ReportLate():
                pass  # words
            case do.LookAround():
                todo.extend(self._handle(self._look()))
            case do.ExamineLife():
                worker = self._alive(command)
                activity = worker.activity(self.now)
                todo.extend(self._handle(ev.LifeExamined(*worker.key, activity)))
            case do.ResumeLife():
                worker = self._alive(command)
                assert worker.pulse is Pulse.STOPPED, f"{command}: nobody has stopped it"
                worker.pulse = Pulse.MOVING
            case do.ReportStall():
                self._report(command)
            case do.DropParcel():
                if command.number in self.sealed:
                    stale = self.closed or self.sent[command.number].epoch < self.epoch
                    assert stale, f"{command}, although the loop has yet to receive it"
                self.parcels.pop(command.number, None)
                parcel = self.sealed.pop(command.number, None)
                if parcel is not None:
                    self.slabs.free(parcel.key, parcel.lease)
            case do.Deliver():
                self._deliver(command)
            case do.RaiseFault():
                self._raise(command)
            case do.FinishEpoch():
                self._finish()

    def _draw(self, count: int) -> list[do.Command]:
        assert not self.left, "the sampler was asked in a strange thread"
        assert not self.sampler_ended, "the sampler was asked again after its end"
        assert 1 <= count <= self.plan.window * self.plan.longest_bundle
        first = self.asked_of_sampler
        places: list[int] = []
        for place in range(first, min(first + min(count, self.gift), self.batches)):
            if place in self.failures:
                break
            places.append(place)
        if places:
            self.asked_of_sampler += len(places)
            if self._running() and self._anyone_may_load():
                self.drawn += len(places)
            return self._handle(ev.TicketsDrawn(tuple([self.epoch, place] for place in places)))
        self.asked_of_sampler += 1
        if first in self.failures and first < self.batches:
            self.sampler_faults.append(self.drawn)
            self.drawn += 1
            return self._handle(ev.SamplerFailed())
        self.sampler_ended = True
        return self._handle(ev.SamplerEnded())

    def _look(self) -> ev.LivesSeen:
        self.seen = {worker.key: worker.sight() for worker in self.workers.values()}
        return ev.LivesSeen(tuple(self.seen.values()))

    def _look_at_verdict(self, event: ev.LifeExamined, commands: list[do.Command]) -> None:
        """Whoever is replaced for what was seen of him has deserved it."""
        key = event.seat, event.life
        for command in commands:
            if not isinstance(command, do.KillLife):
                continue
            assert (command.seat, command.life) == key, f"{command}: {key} was examined"
            worker, limits = self.workers[key], self.plan.limits
            hangs = worker.pulse not in (Pulse.MOVING, Pulse.SLOW)
            assert hangs or limits.call_s is not None, f"{command}: it moves"
            assert limits.still_s is not None or limits.call_s is not None
            self.replaced[key] = self.seen[key]

    def _report(self, command: do.ReportStall) -> None:
        stall, ticket = command.stall, command.ticket
        assert self.was_running and stall.seconds >= 0.0
        assert (stall.seat, stall.life) in self.seen, f"{command}: nobody has looked"
        if ticket is not None:
            assert ticket.number == stall.ticket and ticket.position not in self.answered

    def _start(self, command: do.StartLife, todo: deque[do.Command]) -> None:
        assert not self.closed, f"{command} after the close"
        assert not self.left, f"{command} from a strange thread"
        if self.plan.tenure is Tenure.EPOCH:
            assert not self.over, f"{command} although the epoch is over"
        assert command.epoch == self.epoch
        self.started[command.seat] += 1
        assert command.life == self.started[command.seat], f"{command}: not the next life"
        for other in self.workers.values():
            if other.seat == command.seat:
                assert other.killed is do.Force.KILL, f"{command}, but {other} is there"
        worker = Worker(command.seat, command.life, command.epoch)
        self.workers[worker.key] = worker
        if self.failing_starts and not any(isinstance(c, do.KillLife) for c in todo):
            self.failing_starts -= 1
            for queued in [c for c in todo if isinstance(c, do.SendTickets)]:
                if (queued.seat, queued.life) == worker.key:  # sent to one who is gone by then
                    todo.remove(queued)
                    self._send(queued)
            self._depart(worker)
            todo.extend(self._handle(ev.LifeEnded(*worker.key, Ending(words="no memory"))))

    def _send(self, command: do.SendTickets | do.BeginEpoch) -> None:
        worker = self._alive(command)
        assert worker.counts, f"{command}: it is leaving"
        if isinstance(command, do.BeginEpoch):
            assert command.epoch == self.epoch
            worker.inbox.append(command)
            return
        assert command.errands, f"{command}: an empty message"
        for errand in command.errands:
            self._send_one(worker, errand)

    def _send_one(self, worker: Worker, errand: Errand) -> None:
        ticket = errand.ticket
        assert ticket.number not in self.sent, f"{errand}: the number is used"
        self.sent[ticket.number] = ticket
        assert ticket.epoch == self.epoch and 0 <= ticket.position < self.drawn
        assert ticket.position not in self.answered, f"{errand}: the loop has it"
        assert ticket.position not in self.void, f"{errand}: it is void"
        blamed = tuple(self.blame.get(ticket.position, ()))
        assert ticket.blamed == blamed, f"{errand}: wrongly blamed, not for {blamed}"
        assert ticket.spared == self.spared.get(ticket.position, ()), f"{errand}: wrongly spared"
        for other in self.workers.values():
            if other.counts:
                assert ticket.position not in [t.position for t in other.tickets(self.epoch)]
        self.slabs.lend(worker.key, errand.lease)
        worker.inbox.append(errand)
        if worker.ended_in == self.epoch:  # the end of its stream counts in its turn, as in torch
            assert self.plan.tenure is Tenure.LOADER and self.plan.order is Order.STRICT
            self.void.add(ticket.position)

    def _kill(self, command: do.KillLife) -> None:
        worker = self._alive(command)
        if command.force is do.Force.TERMINATE:
            assert worker.stopping and worker.killed is None
        else:
            assert worker.killed is not do.Force.KILL, f"{command}: it was killed before"
            sight = self.replaced.pop(worker.key, None)
            if worker.counts and self.was_running:
                if sight is None:
                    self._lose(worker)
                else:
                    self._lose(worker, sight.ticket, sight.step)
        worker.killed = command.force

    def _alive(
        self,
        command: do.BeginEpoch
        | do.SendTickets
        | do.StopLife
        | do.KillLife
        | do.AbandonLife
        | do.ExamineLife
        | do.ResumeLife,
    ) -> Worker:
        key = command.seat, command.life
        assert key in self.workers, f"{command}: there is no such life"
        return self.workers[key]

    def _depart(self, worker: Worker, said: int | None = None, step: int = OURS) -> None:
        if worker.counts and self._running():
            self._lose(worker, said, step)
        del self.workers[worker.key]
        self.departed.append(worker.key)

    def _lose(self, worker: Worker, said: int | None = None, step: int = OURS) -> None:
        """Note what the end of a life that had work to do must lead to."""
        tickets = [t for t in worker.tickets(self.epoch) if t.position not in self.void]
        if self.plan.source is Source.STREAMS:
            if worker.ended_in == self.epoch:
                return
            self.lost_streams.add(worker.seat)
            self.void.update(ticket.position for ticket in tickets[1:])
            if not tickets:
                self.stream_faults[worker.key] = self.drawn
                self.drawn += 1
            return
        self.slow = True
        if worker.works_for(self.epoch) and said != 0:
            # Whom it names is blamed, true or not; else it worked on the oldest.
            named = [ticket for ticket in tickets if ticket.number == said]
            self._blame((named or tickets)[0], step)

    def _blame(self, ticket: Ticket, step: int) -> None:
        """Note a life that was lost with a ticket: the next try, a sample less, or a fault."""
        limits, before = self.plan.limits, self.spared.get(ticket.position, ())
        blamed = self.blame.setdefault(ticket.position, [])
        blamed.append(step)
        last = blamed.count(step) >= limits.attempts or len(blamed) >= limits.tries
        known = 0 <= step - SAMPLE < len(ticket.indices) and len(before) < limits.spared
        if last and known and self.plan.spares:
            blamed.clear()
            self.spared[ticket.position] = (*before, step - SAMPLE)

    # ---- what the loop gets -----------------------------------------------------------------

    def _answer(self, position: int, what: str) -> None:
        assert self.waiting, "an answer although nobody asked"
        self.waiting = False
        self._receive(position, what)
        assert self.sup.progress.delivered == len(self.answered)

    def _receive(self, position: int, what: str) -> None:
        assert 0 <= position < self.drawn
        assert position not in self.answered, f"position {position} came twice"
        assert position not in self.void, f"position {position} came although it is void"
        if self.plan.order is Order.STRICT:
            before = set(range(position)) & self._missing()
            assert not before, f"position {position} came before {before}"
            assert all(position > earlier for earlier in self.answered)
        self.answered[position] = what

    def _deliver(self, command: do.Deliver) -> None:
        assert self.waiting, "an answer although nobody asked"
        self.waiting = False
        assert 1 <= len(command.numbers) <= self.plan.longest_bundle
        for number in command.numbers:
            assert number in self.parcels, f"{command}: there is no parcel {number}"
            assert self.parcels.pop(number) is not ev.Outcome.ENDED
            parcel = self.sealed.pop(number)
            assert not command.copied or len(command.numbers) == 1, f"{command}: not alone"
            self.slabs.deliver(parcel, command.copied)
            ticket = self.sent[number]
            assert ticket.epoch == self.epoch
            assert ticket.indices[0] == self.epoch
            self._receive(ticket.position, "delivered")
        assert self.sup.progress.delivered == len(self.answered)

    def _raise(self, command: do.RaiseFault) -> None:
        fault = command.fault
        if fault.kind is FaultKind.TIMEOUT:
            assert self.waiting
            self.waiting = False
            assert fault.seconds >= self.plan.timeout_s - 1e-6  # of a large float
        elif fault.kind in STOPPING_KINDS:
            assert self.waiting
            self.waiting = False
            self.over = True
        elif fault.kind is FaultKind.SAMPLER:
            self._answer(self.sampler_faults.popleft(), "raised")
        elif fault.kind is FaultKind.STREAM_LOST and fault.ticket is None:
            assert fault.seat is not None and fault.life is not None
            self._answer(self.stream_faults.pop((fault.seat, fault.life)), "raised")
        else:
            assert fault.ticket is not None
            position = fault.ticket.position
            if fault.kind is not FaultKind.STREAM_LOST:
                limits, blamed = self.plan.limits, self.blame[position]
                often = blamed.count(blamed[-1]) == limits.attempts
                assert often or len(blamed) == limits.tries, f"{fault} is innocent"
            self._answer(position, "raised")

    def _finish(self) -> None:
        assert self.waiting, "an answer although nobody asked"
        self.waiting = False
        if self.over:
            return
        self.over = True
        assert not self._missing(), f"never came: {self._missing()}"
        if not self.sampler_ended:
            assert self.plan.source is Source.STREAMS
            ended = {w.seat for w in self.workers.values() if w.ended_in == self.epoch}
            gone = {seat for seat in range(self.plan.seats) if seat not in self._seats_with_life()}
            assert ended | gone | self.lost_streams == set(range(self.plan.seats))
        if self.plan.tenure is Tenure.EPOCH:
            assert not [w for w in self.workers.values() if w.counts], "nobody told them to leave"

    def _seats_with_life(self) -> set[int]:
        return {worker.seat for worker in self.workers.values() if worker.counts}

    def _missing(self) -> set[int]:
        """Give the positions that the loop has still to hear of."""
        missing = set(range(self.drawn)) - self.answered.keys() - self.void
        if self.plan.source is Source.STREAMS and not self._anyone_may_load():
            # What nobody was asked for before the last stream ended will never be.
            asked_for = {t.position for t in self.sent.values() if t.epoch == self.epoch}
            missing &= asked_for | set(self.sampler_faults) | set(self.stream_faults.values())
        return missing

    def _anyone_may_load(self) -> bool:
        states = [seat.state for seat in self.sup._seats.all]
        return SeatState.OPEN in states or SeatState.RESTING in states

    def _look_for_a_freeze(self) -> None:
        """Whoever waits must wait for something that can happen."""
        if not self.waiting or self.sup.next_wakeup() is not None:
            return
        acting = [w for w in self.workers.values() if w.inbox or not w.ready or not w.counts]
        assert acting, f"frozen: the loop waits and nobody acts: {self.sup.snapshot()}"
