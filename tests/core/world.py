"""The world around the supervisor: sampler, workers, loop, memory and clock.

The callers choose what happens (a fuzzer at random, `settle` fairly); the world only sees to it
that what happens could happen, or is a lie on purpose. The model that it is built upon performs
the commands and keeps the books.
"""

from __future__ import annotations

from collections.abc import Iterable

from antifreeze._core import commands as do
from antifreeze._core import events as ev
from antifreeze._core.faults import Ending
from antifreeze._core.health.stall_detection import Activity, Pulse, Sight
from antifreeze._core.loader_plan import Plan, Source
from antifreeze._core.slab_leases import Lease
from antifreeze._core.tickets import Errand, Ticket

from .model import Model
from .slabs import Parcel, Place
from .workers import Worker

KILLED = Ending(signal=9)
LEFT = Ending(exit_code=0)
ROUNDS = 1000  # of a fair world until an epoch has ended; the longest one seen needs 300
FOR_EVER = 10**6  # batches: what an iterable dataset's sampler gives
TINY_S = 1e-6  # to load a batch, where batches travel in bundles
PAGE = 4096  # bytes: the least that a slab holds


class World(Model):
    """Let things happen to one supervisor."""

    def __init__(self, plan: Plan, bundle: int = 1) -> None:
        super().__init__(plan, bundle)
        # In a fair world:
        self.stream_length = 3  # parcels of a life until its stream ends
        self.looks_back = 2  # batches that the loop holds on to

    # ---- what can happen --------------------------------------------------------------------

    def begin_epoch(self, batches: int, failures: Iterable[int] = ()) -> None:
        """Let the loop begin an epoch, at any moment; an unfinished one is broken off."""
        event = ev.EpochAsked(self.epoch + 1, 7)
        if self.closed or self.broken:
            assert self._handle(event) == []
            return
        self.waiting = self.left = False
        self._new_books(event.epoch, batches, failures)
        self._feed(event)

    def ask(self) -> None:
        """Let the loop call `next` (again, if it was interrupted while it waited)."""
        self.waiting, self.left = True, False
        self._feed(ev.LoopAsked())

    def leave(self) -> None:
        """Let somebody else tell what happens, while the loop is away."""
        self.left = not self.waiting and not self.closed and self.epoch >= 0
        self._feed(ev.LoopLeft())

    def close(self) -> None:
        self.waiting, self.closed, self.over = False, True, True
        self._feed(ev.CloseAsked())

    def come_up(self, worker: Worker) -> None:
        """Let a life come up and begin the epoch it was started for."""
        worker.ready = True
        self._feed(ev.LifeReady(*worker.key))
        if worker.key in self.workers:
            self._feed(ev.EpochBegun(*worker.key, worker.first_epoch))

    def work(
        self,
        worker: Worker,
        outcome: ev.Outcome,
        place: int = 0,
        *,
        count: int = 1,
        work_s: float | None = None,
        slab_bytes: int = 0,
    ) -> None:
        """Let a life do what it was sent, up to `count` tickets; with `place`, out of turn.

        What is loaded takes `slab_bytes` of a slab each; 0 if it needs none.
        """
        message = worker.inbox[place]
        worker.pulse = Pulse.MOVING
        if isinstance(message, do.BeginEpoch):
            del worker.inbox[place]
            self._feed(ev.EpochBegun(worker.seat, worker.life, message.epoch))
            return
        if outcome is ev.Outcome.ENDED or worker.ended_in == message.ticket.epoch:
            outcome = ev.Outcome.ENDED
            worker.ended_in = message.ticket.epoch
        loaded = outcome is ev.Outcome.LOADED
        errands = worker.take(count if loaded else 1, place)
        size = slab_bytes * len(errands) if loaded else 0
        for errand in errands:
            self._finish_errand(worker, errand, outcome, size > 0)
        numbers = tuple(errand.ticket.number for errand in errands)
        self._parcels(ev.ParcelsArrived(*worker.key, numbers, outcome, work_s, size > 0, size))

    def _finish_errand(
        self, worker: Worker, errand: Errand, outcome: ev.Outcome, in_slab: bool
    ) -> None:
        worker.parcels += 1
        ticket = errand.ticket
        counts = worker.counts and ticket.epoch == self.epoch and ticket.position not in self.void
        if not counts or outcome is ev.Outcome.ENDED:
            self.slabs.free(worker.key, errand.lease)
        else:
            parcel = self.sealed[ticket.number] = Parcel(worker.key, errand.lease, in_slab)
            self.slabs.seal(parcel)
        if counts and outcome is ev.Outcome.ENDED:
            self.void.add(ticket.position)
            self.void.update(t.position for t in worker.tickets(self.epoch))

    def die(self, worker: Worker, ending: Ending = KILLED, said: int | None = None) -> None:
        """End a life, for whatever reason; it may have said what it worked on, or lied."""
        self._depart(worker, said, ending.step)
        self._feed(ev.LifeEnded(*worker.key, ending, said))

    def hang(self, worker: Worker, pulse: Pulse, sample: int = 0) -> None:
        """Let a life stand still in some way, until it works again or is ended."""
        worker.pulse, worker.sample = pulse, sample

    def poison(self, ending: Ending, pulse: Pulse | None = None) -> None:
        """Let one batch end or hang whoever loads it, again and again, at the same sample."""
        position: int | None = None
        for _ in range(3 * self.plan.limits.attempts):
            for worker in list(self.workers.values()):
                if worker.key in self.workers and not worker.ready and worker.counts:
                    self.come_up(worker)
            if position is None:
                position = min((self._first(w).position for w in self._at_work()), default=None)
            for worker in [w for w in self._at_work() if self._first(w).position == position]:
                if pulse is None:
                    self.die(worker, ending, self._first(worker).number)
                elif not self.closed:
                    self.hang(worker, pulse, ending.step % 2)
                    self.ask()
                    self.watch(20.0)
                break
            else:
                self.watch(1.0)  # it is with a seat that rests, or behind something else

    def _first(self, worker: Worker) -> Ticket:
        return worker.tickets(self.epoch)[0]

    def _at_work(self) -> list[Worker]:
        return [w for w in self.workers.values() if w.counts and w.works_for(self.epoch)]

    def look(self) -> None:
        """Let somebody look while the loop is away, or out of turn."""
        self._feed(self._look())

    def watch(self, seconds: float) -> None:
        """Let time pass and do nothing but what deadlines ask for: hangs come out."""
        until = self.now + seconds
        while self.sup.next_wakeup() is not None and (self.sup.next_wakeup() or 0.0) <= until:
            self.ring()
        self.now = max(self.now, until)

    def give_back(self, place: Place) -> None:
        """Let the loop drop the last view of a slab that it kept."""
        lease = self.slabs.give_back(place)
        self._feed(ev.LeasesReturned(((*place, lease.generation),)))

    def fork(self) -> None:
        self.slabs.fork()
        assert self._feed(ev.ProgramForked()) == []

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

    def grow(self, worker: Worker) -> None:
        """Have it seen that a life holds ever more memory."""
        for own_bytes in (100, 10_000):
            self._feed(ev.LivesSeen((Sight(worker.seat, worker.life, 0, 0, own_bytes),)))

    def lie_about_parcels(self, seat: int, life: int, numbers: Iterable[int]) -> None:
        """Tell of parcels that this life was never asked for, or has brought before."""
        worker = self.workers.get((seat, life))
        in_hand = set() if worker is None else {ticket.number for ticket in worker.in_hand()}
        lies = tuple(number for number in numbers if number not in in_hand)
        if lies:
            size = PAGE * len(lies) if lies[0] % 2 == 0 else 0
            loaded = ev.Outcome.LOADED
            self._parcels(ev.ParcelsArrived(seat, life, lies, loaded, TINY_S, size > 0, size))

    def lie_about_lease(self, seat: int, life: int, lease: Lease) -> None:
        """Give back what the loop does not keep."""
        kept = self.slabs.kept.get((seat, life, lease.slot))
        if kept is None or kept.generation != lease.generation:
            self._feed(ev.LeasesReturned(((seat, life, lease.slot, lease.generation),)))

    def lie_about_epoch(self, seat: int, life: int, epoch: int) -> None:
        if epoch < self.epoch or (seat, life) not in self.workers:
            self._feed(ev.EpochBegun(seat, life, epoch))

    def lie_about_looks(self, seat: int, life: int, number: int, step: int) -> None:
        """Tell of a look at somebody who was not asked about, or is not there."""
        if (seat, life) not in self.workers:
            self._feed(ev.LivesSeen((*self._look().sights, Sight(seat, life, number, step))))
            self._feed(ev.LifeExamined(seat, life, Activity(deadlock="a b")))

    def lie_about_life(self, seat: int, life: int) -> None:
        """Tell of the birth and the death of a life that is gone, or was never born."""
        if (seat, life) not in self.workers:
            self._feed(ev.LifeReady(seat, life))
            self._feed(ev.LifeEnded(seat, life, LEFT, next(iter(self.sealed), None)))
        elif self.workers[seat, life].ready:
            self._feed(ev.LifeReady(seat, life))

    # ---- a fair world -----------------------------------------------------------------------

    def settle(self) -> None:
        """Stop all faults; the epoch must end, and all of it must be accounted for."""
        self.failing_starts = 0
        for worker in self.workers.values():
            worker.pulse = Pulse.MOVING
        for _ in range(ROUNDS):
            if self.over or self.broken:
                break
            for place in list(self.slabs.kept)[: -self.looks_back or None]:
                self.give_back(place)
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
        for place in list(self.slabs.kept):  # the loop may look at a batch for as long as it likes
            self.give_back(place)
        assert not self.sup._ledger.kept

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
                streams = self.plan.source is Source.STREAMS
                ends = streams and worker.parcels >= self.stream_length
                outcome = ev.Outcome.ENDED if ends else ev.Outcome.LOADED
                size = PAGE if worker.parcels % 3 == 0 else 0
                self.work(worker, outcome, count=16, work_s=TINY_S, slab_bytes=size)
            else:
                continue
            busy = True
        if not busy:
            assert self.sup.next_wakeup() is not None, f"frozen: {self.sup.snapshot()}"
            self.ring()
