"""Random walks through the world from a seed: shallow in choice, deep in number.

The state machine of `test_machine.py` shrinks what it finds; a walk is several times as quick, and
so finds what happens once in a thousand runs.
"""

from __future__ import annotations

import random

from antifreeze._core.events import Outcome
from antifreeze._core.faults import Ending
from antifreeze._core.health.stall_detection import Pulse
from antifreeze._core.health.worker_phases import OURS, SAMPLE
from antifreeze._core.limits import LIMITS, Limits
from antifreeze._core.loader_plan import Plan, Source, Tenure
from antifreeze._core.reorder import Order
from antifreeze._core.slab_leases import Lease

from .workers import Worker
from .world import FOR_EVER, PAGE, World

STEPS = {  # how often, relative to each other
    "ask": 8,
    "come_up": 6,
    "work": 8,
    "work_on": 3,
    "end_stream": 2,
    "leave": 3,
    "begin_epoch": 1.5,
    "settle": 0.5,
    "die": 2,
    "die_young": 1.5,
    "die_at_work": 2,
    "get_stuck": 1,
    "fail_starts": 0.5,
    "answer_out_of_turn": 1,
    "pass_time": 1,
    "leave_alone": 1.5,
    "ring": 3,
    "lie": 3,
    "grow": 4,
    "give_back": 4,
    "fork": 2,
    "change_habits": 0.5,
    "hang": 2,
    "look": 1,
    "watch": 1.5,
    "poison": 2,
    "close": 0.2,
}


def random_plan(rng: random.Random) -> Plan:
    return Plan(
        seats=rng.choice([1, 1, 2, 2, 3, 4]),
        window=rng.choice([1, 1, 1, 2, 3, 4, 6, 8]),
        order=rng.choice(list(Order)),
        source=rng.choice(list(Source)),
        longest_bundle=rng.choice(
            [1, 2, LIMITS.bundles.tickets, LIMITS.bundles.tickets]
        ),  # short ones: soon no room is left
        tenure=rng.choice(list(Tenure)),
        timeout_s=rng.choice([0.0, 3.0]),
        spares=rng.random() < 0.5,
        limits=Limits(
            attempts=rng.choice([1, 2, 2, 3]),
            tries=rng.choice([3, 4, 6]),
            failed_starts=rng.choice([1, 2, 3, 3]),
            barren_lives=rng.choice([1, 3, 5, 8, 8]),
            start_s=10.0,
            life_bytes=1_000,
            spared=rng.randint(1, 3),
            look_s=rng.choice([None, 1.0, 1.0]),
            call_s=rng.choice([None, None, 4.0]),
            still_s=rng.choice([None, 8.0, 8.0]),
            spin_s=rng.choice([None, 12.0]),
        ),
    )


class Walk:
    """One walk. The same seed takes the same way, as long as the supervisor decides the same."""

    def __init__(self, seed: int, plan: Plan | None = None) -> None:
        self._rng = random.Random(seed)
        self.world = World(plan or random_plan(self._rng), self._rng.choice([1, 1, 2, 3, 8]))
        self._begin_epoch()

    def go(self, steps: int) -> None:
        for name in self._rng.choices(list(STEPS), list(STEPS.values()), k=steps):
            getattr(self, f"_{name}")()

    def arrive(self) -> None:
        """Stop all faults: the epoch ends, a further one runs through, and everything goes."""
        world = self.world
        if not world.closed:
            world.settle()
            if not world.broken:
                self._begin_epoch()
                world.settle()
            world.close()
        world.settle_closed()

    def _pick(self, *, ready: bool | None = None, busy: bool = False) -> list[Worker]:
        fit = [
            worker
            for worker in self.world.workers.values()
            if (ready is None or worker.ready is ready) and (worker.inbox or not busy)
        ]
        return [self._rng.choice(fit)] if fit else []

    def _said(self, worker: Worker) -> int | None:
        """Give what a life says it worked on: nothing, something it has, or a lie."""
        numbers = [ticket.number for ticket in worker.in_hand()]
        return self._rng.choice([None, 0, *numbers[:8], *numbers[:8], self._rng.randint(1, 99)])

    def _load(self, worker: Worker) -> None:
        rng = self._rng
        self.world.work(
            worker,
            self._outcome(),
            count=rng.choice([1, 1, 1, 2, 5, 64]),
            work_s=rng.choice([None, 0.0, 1e-6, 1e-6, 1e-6, 1e-4, 2.0]),
            slab_bytes=rng.choice(
                [0, 0, 0, 1, PAGE, LIMITS.bundles.slab_bytes // 3, LIMITS.bundles.slab_bytes + 1]
            ),
        )

    def _outcome(self) -> Outcome:
        return self._rng.choice([*[Outcome.LOADED] * 7, Outcome.FAILED])

    def _ask(self) -> None:
        if not self.world.closed:
            self.world.ask()

    def _come_up(self) -> None:
        for worker in self._pick(ready=False):
            self.world.come_up(worker)

    def _work(self, count: int = 1) -> None:
        for worker in self._pick(ready=True, busy=True):
            for _ in range(count):
                if worker.inbox and worker.key in self.world.workers:
                    self._load(worker)

    def _work_on(self) -> None:
        self._work(self._rng.randint(2, 6))

    def _end_stream(self) -> None:
        if self.world.plan.source is Source.STREAMS:
            for worker in self._pick(ready=True, busy=True):
                self.world.work(worker, Outcome.ENDED)

    def _leave(self) -> None:
        leaving = [w for w in self.world.workers.values() if not w.counts and not w.stuck]
        if leaving:
            worker = self._rng.choice(leaving)
            self.world.die(worker, said=self._said(worker))

    def _begin_epoch(self) -> None:
        if self.world.closed:
            return
        for _ in range(self._rng.choice([1, 1, 1, 3])):
            if self.world.plan.source is Source.STREAMS and self._rng.random() < 0.8:
                self.world.begin_epoch(FOR_EVER)
            else:
                most = self._rng.choice([12, 12, 12, 12, 60, 200])
                failures = {self._rng.randrange(most) for _ in range(self._rng.choice([0, 0, 2]))}
                self.world.begin_epoch(self._rng.randint(0, most), failures)

    def _settle(self) -> None:
        if not self.world.over:
            self.world.settle()

    def _die(self) -> None:
        for worker in self._pick():
            self.world.die(worker, self._ending(), self._said(worker))

    def _die_at_work(self) -> None:
        for worker in self._pick(ready=True, busy=True):
            self.world.die(worker, self._ending(), self._said(worker))

    def _die_young(self) -> None:
        for worker in self._pick(ready=False):
            self.world.die(worker, said=self._said(worker))

    def _ending(self) -> Ending:
        """Give an end, and perhaps a word of which sample it was: there are two in a batch."""
        return Ending(signal=9, step=self._rng.choice([OURS, SAMPLE, SAMPLE + 1, SAMPLE + 2]))

    def _hang(self) -> None:
        for worker in self._pick(ready=self._rng.choice([None, True, True])):
            self.world.hang(worker, self._rng.choice(list(Pulse)), self._rng.randint(0, 1))
            if self._rng.random() < 0.5:
                self._ask()
                self.world.watch(self._rng.choice([3.0, 20.0]))

    def _poison(self) -> None:
        hangs = self._rng.choice([None, Pulse.STUCK, Pulse.DEADLOCKED, Pulse.SPINNING])
        self.world.poison(self._ending(), hangs)

    def _look(self) -> None:
        self.world.look()

    def _watch(self) -> None:
        self.world.watch(self._rng.choice([3.0, 20.0, 40.0]))

    def _get_stuck(self) -> None:
        for worker in self._pick():
            worker.stuck = True

    def _fail_starts(self) -> None:
        self.world.failing_starts = self._rng.randint(1, 4)

    def _answer_out_of_turn(self) -> None:
        for worker in self._pick(ready=True, busy=True):
            place = self._rng.randint(1, 3)
            if place < len(worker.tickets(self.world.epoch)) == len(worker.inbox):
                self.world.work(worker, self._outcome(), place)

    def _leave_alone(self) -> None:
        self.world.leave()

    def _pass_time(self) -> None:
        self.world.pass_time(self._rng.choice([0.01, 0.3, 2.0, 7.0, 500.0]))

    def _ring(self) -> None:
        self.world.ring(self._rng.choice([0.0, 0.0, 0.01, 4.0, 1000.0]))

    def _lie(self) -> None:
        """Let the living, the departed or a stranger say what is not so."""
        world, rng = self.world, self._rng
        strangers = [(rng.randrange(world.plan.seats), rng.randint(1, 4))]
        seat, life = rng.choice([*world.workers, *world.departed[-8:], *strangers])
        numbers = [*world.sealed, *list(world.sent)[-12:], rng.randint(1, 99)]
        world.lie_about_parcels(seat, life, rng.choices(numbers, k=rng.choice([1, 1, 4])))
        world.lie_about_lease(
            seat, life, Lease(rng.randint(0, 3), rng.randint(1, 3), rng.random() < 0.5)
        )
        for (seat_of, life_of), lease in world.slabs.past[-3:]:  # twice
            world.lie_about_lease(seat_of, life_of, lease)
        world.lie_about_epoch(seat, life, world.epoch - rng.randint(0, 2))
        world.lie_about_life(seat, life)
        world.lie_about_looks(seat, life, rng.choice(numbers), rng.choice([OURS, SAMPLE]))

    def _grow(self) -> None:
        for worker in self._pick(ready=True, busy=True):
            self.world.grow(worker)

    def _give_back(self) -> None:
        kept = list(self.world.slabs.kept)
        for place in self._rng.sample(kept, min(len(kept), self._rng.choice([1, 1, 2, 99]))):
            self.world.give_back(place)

    def _fork(self) -> None:
        self.world.fork()
        if self._rng.random() < 0.5:
            for place in list(self.world.slabs.kept):
                self.world.give_back(place)

    def _change_habits(self) -> None:
        """Let the sampler give more or less at a time from now on, and so forth."""
        self.world.gift = self._rng.choice([1, 3, 50, 1000])
        self.world.stream_length = self._rng.choice([3, 3, 30])
        self.world.looks_back = self._rng.choice([0, 2, 1000])

    def _close(self) -> None:
        if not self.world.closed:
            self.world.close()
