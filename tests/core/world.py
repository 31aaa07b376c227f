"""A model of everything around the supervisor: sampler, workers, loop, memory and clock.

It performs commands as a driver would and keeps books of its own, so that it notices when the
supervisor loses a batch, gives one twice, blames an innocent one, lends room that somebody may
still write to, speaks to the dead, or waits for nothing.

The callers choose what happens (a fuzzer at random, `settle` fairly); the world only sees to it
that what happens could happen, or is a lie on purpose.
"""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Iterable
from dataclasses import dataclass, field

from antifreeze._core import commands as do
from antifreeze._core import events as ev
from antifreeze._core.faults import Ending, FaultKind
from antifreeze._core.leases import Lease
from antifreeze._core.plan import Plan, Source, Tenure
from antifreeze._core.reorder import Order
from antifreeze._core.seats import SeatState
from antifreeze._core.supervisor import Supervisor
from antifreeze._core.tickets import Ticket

STOPPING_KINDS = (FaultKind.NEVER_STARTED, FaultKind.BUDGET_SPENT)
KILLED = Ending(signal=9)
LEFT = Ending(exit_code=0)
ROUNDS = 400  # of a fair world until an epoch has ended; the longest one seen needs 26
FOR_EVER = 10**6  # batches: what an iterable dataset's sampler gives

LifeKey = tuple[int, int]  # seat, life


@dataclass
class Worker:
    """One life as it really is, whatever the supervisor believes."""

    seat: int
    life: int
    first_epoch: int  # the one it was started for
    ready: bool = False
    stopping: bool = False  # was told to leave
    killed: do.Force | None = None
    stuck: bool = False  # sits in the kernel: does not die when it is killed
    inbox: deque[do.SendTicket | do.BeginEpoch] = field(default_factory=deque)
    ended_in: int = -1  # the last epoch in which its stream ended
    parcels: int = 0

    @property
    def key(self) -> LifeKey:
        return self.seat, self.life

    @property
    def counts(self) -> bool:
        """Say whether what it brings may still be delivered."""
        return not self.stopping and self.killed is None

    def tickets(self, epoch: int) -> list[Ticket]:
        """Give what it still has to load for an epoch, oldest first."""
        return [ticket for ticket in self.in_hand() if ticket.epoch == epoch]

    def in_hand(self) -> list[Ticket]:
        return [message.ticket for message in self.inbox if isinstance(message, do.SendTicket)]

    def works_for(self, epoch: int) -> bool:
        """Say whether what it is busy with right now is a ticket of this epoch."""
        return (
            self.ready
            and len(self.inbox) > 0
            and isinstance(self.inbox[0], do.SendTicket)
            and self.inbox[0].ticket.epoch == epoch
        )


class World:
    """Drive one supervisor and check each of its commands against the model."""

    def __init__(self, plan: Plan) -> None:
        self.plan = plan
        self.sup = Supervisor(plan)
        self.now = 1000.0
        self.closed = False
        self.waiting = False  # the loop is inside `next`
        self.was_running = False  # when the last event came
        self.workers: dict[LifeKey, Worker] = {}
        self.departed: list[LifeKey] = []
        self.started: Counter[int] = Counter()  # lives of each seat
        self.failing_starts = 0  # so many of the next starts fail at once
        self.sent: dict[int, Ticket] = {}  # every ticket ever sent, by number
        self.parcels: dict[int, ev.Outcome] = {}  # what the driver keeps, by number
        self.writers: dict[int, LifeKey] = {}  # slot -> the life that may write there
        self.sealed: dict[int, int] = {}  # number of an arrived parcel -> its slot
        self.leases: set[Lease] = set()  # ever lent
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
        self.blame: Counter[int] = Counter()  # position -> lives that ended while they loaded it
        self.sampler_faults: deque[int] = deque()  # positions
        self.stream_faults: dict[LifeKey, int] = {}  # broken while idle -> the fault's position
        self.lost_streams: set[int] = set()  # seats

    # ---- what can happen --------------------------------------------------------------------

    def begin_epoch(self, batches: int, failures: Iterable[int] = ()) -> None:
        """Let the loop begin an epoch, at any moment; an unfinished one is broken off."""
        event = ev.EpochAsked(self.epoch + 1, 7)
        if self.closed or self.broken:
            assert self._handle(event) == []
            return
        self.waiting = False
        self._new_books(event.epoch, batches, failures)
        self._feed(event)

    def ask(self) -> None:
        """Let the loop call `next` (again, if it was interrupted while it waited)."""
        self.waiting = True
        self._feed(ev.LoopAsked())

    def close(self) -> None:
        self.waiting, self.closed, self.over = False, True, True
        self._feed(ev.CloseAsked())

    def come_up(self, worker: Worker) -> None:
        """Let a life come up and begin the epoch it was started for."""
        worker.ready = True
        self._feed(ev.LifeReady(*worker.key))
        if worker.key in self.workers:
            self._feed(ev.EpochBegun(*worker.key, worker.first_epoch))

    def work(self, worker: Worker, outcome: ev.Outcome, place: int = 0) -> None:
        """Let a life do what it was sent; with `place`, out of turn."""
        message = worker.inbox[place]
        del worker.inbox[place]
        if isinstance(message, do.BeginEpoch):
            self._feed(ev.EpochBegun(worker.seat, worker.life, message.epoch))
            return
        ticket = message.ticket
        if outcome is ev.Outcome.ENDED or worker.ended_in == ticket.epoch:
            outcome = ev.Outcome.ENDED
            worker.ended_in = ticket.epoch
        worker.parcels += 1
        if self.writers.get(message.lease.slot) == worker.key:
            del self.writers[message.lease.slot]
        counts = worker.counts and ticket.epoch == self.epoch and ticket.position not in self.void
        if counts and outcome is ev.Outcome.ENDED:
            self.void.add(ticket.position)
            self.void.update(t.position for t in worker.tickets(self.epoch))
        elif counts:
            self.sealed[ticket.number] = message.lease.slot
        self._parcel(worker.key, ticket.number, outcome)

    def die(self, worker: Worker, ending: Ending = KILLED) -> None:
        """End a life, for whatever reason."""
        self._depart(worker)
        self._feed(ev.LifeEnded(*worker.key, ending))

    def pass_time(self, seconds: float) -> None:
        """Let time pass unnoticed: the loop was away."""
        self.now += seconds

    def ring(self, late_s: float = 0.0) -> None:
        """Tell the time when the supervisor asked for it, or later."""
        wakeup = self.sup.next_wakeup()
        if wakeup is not None:
            self.now = max(self.now, wakeup + late_s)
        self._feed(ev.ClockRang())
        wakeup = self.sup.next_wakeup()
        assert wakeup is None or wakeup > self.now, "a deadline that has passed was left behind"

    # ---- lies -------------------------------------------------------------------------------

    def lie_about_parcel(self, seat: int, life: int, number: int) -> None:
        """Tell of a parcel that this life was never asked for, or has brought before."""
        worker = self.workers.get((seat, life))
        if worker is None or number not in {ticket.number for ticket in worker.in_hand()}:
            self._parcel((seat, life), number, ev.Outcome.LOADED)

    def lie_about_epoch(self, seat: int, life: int, epoch: int) -> None:
        if epoch < self.epoch or (seat, life) not in self.workers:
            self._feed(ev.EpochBegun(seat, life, epoch))

    def lie_about_life(self, seat: int, life: int) -> None:
        """Tell of the birth and the death of a life that is gone, or was never born."""
        if (seat, life) not in self.workers:
            self._feed(ev.LifeReady(seat, life))
            self._feed(ev.LifeEnded(seat, life, LEFT))
        elif self.workers[seat, life].ready:
            self._feed(ev.LifeReady(seat, life))

    # ---- a fair world -----------------------------------------------------------------------

    def settle(self) -> None:
        """Stop all faults; the epoch must end, and all of it must be accounted for."""
        self.failing_starts = 0
        for _ in range(ROUNDS):
            if self.over or self.broken:
                break
            if not self.waiting:
                self.ask()
            if self.waiting:
                self._one_fair_round()
        else:
            raise AssertionError(f"epoch {self.epoch} does not end: {self.sup.snapshot()}")
        while not self.over:  # broken: what is loaded is delivered first, then the fault
            delivered = len(self.answered)
            self.ask()
            assert not self.waiting, "a broken run keeps its loop waiting"
            assert self.over or len(self.answered) > delivered

    def settle_closed(self) -> None:
        """After a close every life goes, or is abandoned, and nothing is left behind."""
        for _ in range(ROUNDS):
            if not self.workers:
                break
            self._one_fair_round()
        assert self.sup.at_rest, f"still there: {list(self.workers)}"
        assert self.sup.next_wakeup() is None, "a deadline is left, but nobody it could be for"
        assert not self.parcels, f"nobody threw away the parcels {self.parcels}"

    def _one_fair_round(self) -> None:
        busy = False
        for worker in list(self.workers.values()):
            if worker.key not in self.workers:
                continue
            if worker.killed is not None or worker.stopping:
                if worker.stuck:
                    continue
                self.die(worker, LEFT)
            elif not worker.ready:
                self.come_up(worker)
            elif worker.inbox:
                ends = self.plan.source is Source.STREAMS and worker.parcels >= 3
                self.work(worker, ev.Outcome.ENDED if ends else ev.Outcome.LOADED)
            else:
                continue
            busy = True
        if not busy:
            assert self.sup.next_wakeup() is not None, f"frozen: {self.sup.snapshot()}"
            self.ring()

    # ---- telling, and doing what is asked ---------------------------------------------------

    @property
    def broken(self) -> bool:
        return self.sup.snapshot().run.value == "broken"

    def _running(self) -> bool:
        return self.sup.snapshot().run.value == "running"

    def _handle(self, event: ev.Event) -> list[do.Command]:
        self.was_running = self._running()
        commands = self.sup.handle(event, self.now)
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

    def _parcel(self, key: LifeKey, number: int, outcome: ev.Outcome) -> None:
        waits = number in self.sealed  # for the loop; if this one does not count, another one does
        self.parcels.setdefault(number, outcome)
        commands = self._feed(ev.ParcelArrived(*key, number, outcome))
        if not waits:
            assert do.DropParcel(number) in commands, f"who throws away parcel {number}?"

    def _perform(self, command: do.Command, todo: deque[do.Command]) -> None:
        match command:
            case do.DrawTicket():
                todo.extend(self._draw())
            case do.StartLife():
                self._start(command, todo)
            case do.BeginEpoch() | do.SendTicket():
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
                del self.workers[worker.key]  # its slots stay in `writers` for good
                self.departed.append(worker.key)
            case do.DropParcel():
                if command.number in self.sealed:
                    stale = self.closed or self.sent[command.number].epoch < self.epoch
                    assert stale, f"{command}, although the loop has yet to receive it"
                self.parcels.pop(command.number, None)
                self.sealed.pop(command.number, None)
            case do.Deliver():
                self._deliver(command)
            case do.RaiseFault():
                self._raise(command)
            case do.FinishEpoch():
                self._finish()

    def _draw(self) -> list[do.Command]:
        place = self.asked_of_sampler
        self.asked_of_sampler += 1
        assert not self.sampler_ended, "the sampler was asked again after its end"
        wanted = self._running() and self._anyone_may_load()
        if place >= self.batches:
            self.sampler_ended = True
            return self._handle(ev.SamplerEnded())
        if place in self.failures:
            self.sampler_faults.append(self.drawn)
            self.drawn += 1
            return self._handle(ev.SamplerFailed())
        if wanted:
            self.drawn += 1
        return self._handle(ev.TicketDrawn([self.epoch, place]))

    def _start(self, command: do.StartLife, todo: deque[do.Command]) -> None:
        assert not self.closed, f"{command} after the close"
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
            for queued in [c for c in todo if isinstance(c, do.SendTicket)]:
                if (queued.seat, queued.life) == worker.key:  # sent to one who is gone by then
                    todo.remove(queued)
                    self._send(queued)
            self._depart(worker)
            todo.extend(self._handle(ev.LifeEnded(*worker.key, Ending(words="no memory"))))

    def _send(self, command: do.SendTicket | do.BeginEpoch) -> None:
        worker = self._alive(command)
        assert worker.counts, f"{command}: it is leaving"
        worker.inbox.append(command)
        if isinstance(command, do.BeginEpoch):
            assert command.epoch == self.epoch
            return
        ticket, lease = command.ticket, command.lease
        assert ticket.number not in self.sent, f"{command}: the number is used"
        self.sent[ticket.number] = ticket
        assert ticket.epoch == self.epoch and 0 <= ticket.position < self.drawn
        assert ticket.position not in self.answered, f"{command}: the loop has it"
        assert ticket.position not in self.void, f"{command}: it is void"
        assert ticket.attempt == 1 + self.blame[ticket.position], f"{command}: wrong attempt"
        for other in self.workers.values():
            if other is not worker and other.counts:
                assert ticket.position not in [t.position for t in other.tickets(self.epoch)]
        assert lease.slot not in self.writers, f"{command}: {self.writers[lease.slot]} may write"
        assert lease.slot not in self.sealed.values(), f"{command}: a parcel is there"
        assert lease not in self.leases, f"{command}: an old generation"
        self.leases.add(lease)
        self.writers[lease.slot] = worker.key

    def _kill(self, command: do.KillLife) -> None:
        worker = self._alive(command)
        if command.force is do.Force.TERMINATE:
            assert worker.stopping and worker.killed is None
        else:
            assert worker.killed is not do.Force.KILL, f"{command}: it was killed before"
            if worker.counts and self.was_running:
                self._lose(worker)
        worker.killed = command.force

    def _alive(
        self,
        command: do.BeginEpoch | do.SendTicket | do.StopLife | do.KillLife | do.AbandonLife,
    ) -> Worker:
        key = command.seat, command.life
        assert key in self.workers, f"{command}: there is no such life"
        return self.workers[key]

    def _depart(self, worker: Worker) -> None:
        if worker.counts and self._running():
            self._lose(worker)
        del self.workers[worker.key]
        self.departed.append(worker.key)
        for slot in [slot for slot, key in self.writers.items() if key == worker.key]:
            del self.writers[slot]

    def _lose(self, worker: Worker) -> None:
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
        elif worker.works_for(self.epoch):
            self.blame[tickets[0].position] += 1

    # ---- what the loop gets -----------------------------------------------------------------

    def _answer(self, position: int, what: str) -> None:
        assert self.waiting, "an answer although nobody asked"
        self.waiting = False
        assert 0 <= position < self.drawn
        assert position not in self.answered, f"position {position} came twice"
        assert position not in self.void, f"position {position} came although it is void"
        if self.plan.order is Order.STRICT:
            before = set(range(position)) & self._missing()
            assert not before, f"position {position} came before {before}"
            assert all(position > earlier for earlier in self.answered)
        self.answered[position] = what
        assert self.sup.progress.delivered == len(self.answered)

    def _deliver(self, command: do.Deliver) -> None:
        assert command.number in self.parcels, f"{command}: there is no such parcel"
        assert self.parcels.pop(command.number) is not ev.Outcome.ENDED
        assert self.sealed.pop(command.number, None) is not None
        ticket = self.sent[command.number]
        assert ticket.epoch == self.epoch
        assert ticket.indices[0] == self.epoch
        self._answer(ticket.position, "delivered")

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
                assert self.blame[position] == self.plan.limits.attempts, f"{fault} is innocent"
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
        states = [seat.state for seat in self.sup.snapshot().seats]
        return SeatState.OPEN in states or SeatState.RESTING in states

    def _look_for_a_freeze(self) -> None:
        """Whoever waits must wait for something that can happen."""
        if not self.waiting or self.sup.next_wakeup() is not None:
            return
        acting = [w for w in self.workers.values() if w.inbox or not w.ready or not w.counts]
        assert acting, f"frozen: the loop waits and nobody acts: {self.sup.snapshot()}"
