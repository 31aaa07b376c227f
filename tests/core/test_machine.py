"""A supervisor in a world of random faults: sound after every step, and every epoch ends."""

from __future__ import annotations

import pytest
from hypothesis import Phase, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, precondition, rule

from antifreeze._core.events import Outcome
from antifreeze._core.faults import Ending
from antifreeze._core.health.stall_detection import Pulse
from antifreeze._core.health.worker_phases import OURS, SAMPLE
from antifreeze._core.limits import LIMITS, Limits
from antifreeze._core.loader_plan import Plan, Source, Tenure
from antifreeze._core.reorder import Order
from antifreeze._core.slab_leases import Lease

from ..repetition import some_of
from .walk import Walk
from .workers import Worker
from .world import FOR_EVER, PAGE, World

picks = st.integers(0, 7)  # which of the lives that a rule can be about
steps = st.sampled_from([OURS, SAMPLE, SAMPLE + 1, SAMPLE + 2])  # a batch has two samples
endings = st.one_of(
    st.builds(Ending, signal=st.sampled_from([9, 11]), step=steps),
    st.sampled_from([Ending(exit_code=1), Ending()]),
)
sizes = st.sampled_from(
    [1, PAGE, LIMITS.bundles.slab_bytes // 3, LIMITS.bundles.slab_bytes + 1]
)  # of a slab
works = st.sampled_from([None, 0.0, 1e-6, 1e-6, 1e-4, 2.0])  # seconds that a message took
outcomes = st.sampled_from([Outcome.LOADED, Outcome.LOADED, Outcome.LOADED, Outcome.FAILED])
leases = st.builds(Lease, picks, picks, st.booleans())
limits = st.builds(
    Limits,
    attempts=st.integers(1, 3),
    tries=st.integers(3, 6),
    failed_starts=st.integers(1, 3),
    barren_lives=st.integers(1, 5),
    start_s=st.just(10.0),
    spared=st.integers(1, 3),
    look_s=st.sampled_from([1.0, 1.0, None]),
    call_s=st.sampled_from([None, None, 4.0]),
    still_s=st.sampled_from([8.0, 8.0, None]),
    spin_s=st.sampled_from([12.0, None]),
)


@st.composite
def plans(draw: st.DrawFn) -> Plan:
    return Plan(
        seats=draw(st.integers(1, 4)),
        window=draw(st.integers(1, 8)),
        order=draw(st.sampled_from(Order)),
        source=draw(st.sampled_from(Source)),
        longest_bundle=draw(
            st.sampled_from([LIMITS.bundles.tickets, LIMITS.bundles.tickets, 2, 1])
        ),
        tenure=draw(st.sampled_from(Tenure)),
        timeout_s=draw(st.sampled_from([0.0, 3.0])),
        spares=draw(st.booleans()),
        limits=draw(limits),
    )


class SupervisorMachine(RuleBasedStateMachine):
    """Random readiness, arrivals, deaths, lies, time jumps, early breaks."""

    def __init__(self) -> None:
        super().__init__()
        self.world: World | None = None

    @initialize(
        plan=plans(),
        bundle=st.sampled_from([1, 1, 2, 3, 8]),
        batches=st.integers(0, 12),
        failures=st.sets(st.integers(0, 11), max_size=2),
    )
    def begin(self, plan: Plan, bundle: int, batches: int, failures: set[int]) -> None:
        self.world = World(plan, bundle)
        self._begin_epoch(batches, failures)

    def _begin_epoch(self, batches: int, failures: set[int]) -> None:
        if self.w.plan.source is Source.STREAMS and batches > 2:
            batches, failures = FOR_EVER, set()
        self.w.begin_epoch(batches, failures)

    @property
    def w(self) -> World:
        assert self.world is not None
        return self.world

    def _workers(self, pick: int, *, ready: bool | None = None, busy: bool = False) -> list[Worker]:
        """Give one of the lives that fit, in a list, or none."""
        fit = [
            worker
            for worker in self.w.workers.values()
            if (ready is None or worker.ready is ready) and (worker.inbox or not busy)
        ]
        return [fit[pick % len(fit)]] if fit else []

    # ---- the healthy part -------------------------------------------------------------------

    @precondition(lambda self: not self.w.closed)
    @rule()
    def the_loop_asks(self) -> None:
        self.w.ask()

    @rule(pick=picks)
    def a_life_comes_up(self, pick: int) -> None:
        for worker in self._workers(pick, ready=False):
            self.w.come_up(worker)

    @rule(pick=picks, outcome=outcomes)
    def a_life_works(self, pick: int, outcome: Outcome) -> None:
        for worker in self._workers(pick, ready=True, busy=True):
            self.w.work(worker, outcome)

    @rule(pick=picks, outcome=outcomes, times=st.integers(2, 6), work_s=works)
    def a_life_works_on(self, pick: int, outcome: Outcome, times: int, work_s: float) -> None:
        for worker in self._workers(pick, ready=True, busy=True):
            for _ in range(times):
                if worker.inbox and worker.key in self.w.workers:
                    self.w.work(worker, outcome, work_s=work_s)

    @rule(pick=picks, count=st.integers(2, 64), work_s=works)
    def a_life_brings_a_bundle(self, pick: int, count: int, work_s: float | None) -> None:
        for worker in self._workers(pick, ready=True, busy=True):
            self.w.work(worker, Outcome.LOADED, count=count, work_s=work_s)

    @rule(pick=picks, times=st.integers(1, 4), count=st.integers(1, 9), work_s=works, size=sizes)
    def a_life_fills_slabs(
        self, pick: int, times: int, count: int, work_s: float | None, size: int
    ) -> None:
        for worker in self._workers(pick, ready=True, busy=True):
            for _ in range(times):
                if worker.inbox and worker.key in self.w.workers:
                    self.w.work(worker, Outcome.LOADED, count=count, work_s=work_s, slab_bytes=size)

    @precondition(lambda self: self.w.slabs.kept)
    @rule(pick=picks, count=st.integers(1, 9))
    def the_loop_lets_go_of_batches(self, pick: int, count: int) -> None:
        kept = list(self.w.slabs.kept)
        for place in kept[pick % len(kept) :][:count]:
            self.w.give_back(place)

    @precondition(lambda self: self.w.slabs.kept)
    @rule()
    def the_program_forks(self) -> None:
        self.w.fork()

    @rule(gift=st.sampled_from([1, 3, 1000]))
    def the_sampler_gives_so_many_at_a_time(self, gift: int) -> None:
        self.w.gift = gift

    @precondition(lambda self: self.w.plan.source is Source.STREAMS)
    @rule(pick=picks)
    def a_stream_ends(self, pick: int) -> None:
        for worker in self._workers(pick, ready=True, busy=True):
            self.w.work(worker, Outcome.ENDED)

    @rule(pick=picks)
    def a_life_leaves_as_it_was_told(self, pick: int) -> None:
        leaving = [w for w in self.w.workers.values() if not w.counts and not w.stuck]
        if leaving:
            self.w.die(leaving[pick % len(leaving)], Ending(exit_code=0))

    @precondition(lambda self: not self.w.closed)
    @rule(
        batches=st.integers(0, 12),
        failures=st.sets(st.integers(0, 11), max_size=2),
        times=st.sampled_from([1, 1, 1, 3]),
    )
    def the_loop_begins_anew(self, batches: int, failures: set[int], times: int) -> None:
        for _ in range(times):
            self._begin_epoch(batches, failures)

    @precondition(lambda self: not self.w.over)
    @rule()
    def the_epoch_comes_to_its_end(self) -> None:
        self.w.settle()

    # ---- faults -----------------------------------------------------------------------------

    @rule(pick=picks, ending=endings, named=st.integers(-3, 9))
    def a_life_ends(self, pick: int, ending: Ending, named: int) -> None:
        for worker in self._workers(pick):
            numbers = [ticket.number for ticket in worker.in_hand()]
            said = None if named < 0 else ([*numbers, 0] * 10)[named]
            self.w.die(worker, ending, said)

    @rule(pick=picks, ending=endings, named=st.integers(0, 9))
    def a_life_ends_at_work(self, pick: int, ending: Ending, named: int) -> None:
        for worker in self._workers(pick, ready=True, busy=True):
            numbers = [ticket.number for ticket in worker.in_hand()]
            self.w.die(worker, ending, numbers[named % len(numbers)] if numbers else None)

    @rule(pick=picks, ending=endings)
    def a_starting_life_ends(self, pick: int, ending: Ending) -> None:
        for worker in self._workers(pick, ready=False):
            self.w.die(worker, ending)

    @rule(pick=picks)
    def a_life_gets_stuck_in_the_kernel(self, pick: int) -> None:
        for worker in self._workers(pick):
            worker.stuck = True

    @rule(pick=picks, pulse=st.sampled_from(Pulse), sample=st.integers(0, 1))
    def a_life_hangs(self, pick: int, pulse: Pulse, sample: int) -> None:
        for worker in self._workers(pick):
            self.w.hang(worker, pulse, sample)

    @rule(ending=endings, pulse=st.sampled_from([None, None, Pulse.STUCK, Pulse.DEADLOCKED]))
    def a_batch_is_poisonous(self, ending: Ending, pulse: Pulse | None) -> None:
        self.w.poison(ending, pulse)

    @rule(seconds=st.sampled_from([3.0, 20.0, 40.0]))
    def nothing_happens_for_a_while(self, seconds: float) -> None:
        self.w.watch(seconds)

    @rule()
    def somebody_looks_out_of_turn(self) -> None:
        self.w.look()

    @rule(count=st.integers(1, 4))
    def starting_becomes_impossible(self, count: int) -> None:
        self.w.failing_starts = count

    @rule(pick=picks, place=st.integers(1, 3), outcome=outcomes)
    def a_life_answers_out_of_turn(self, pick: int, place: int, outcome: Outcome) -> None:
        for worker in self._workers(pick, ready=True, busy=True):
            if place < len(worker.tickets(self.w.epoch)) == len(worker.inbox):
                self.w.work(worker, outcome, place)

    @rule(seconds=st.sampled_from([0.01, 0.3, 2.0, 7.0, 500.0]))
    def time_passes(self, seconds: float) -> None:
        self.w.pass_time(seconds)

    @rule(late_s=st.sampled_from([0.0, 0.0, 0.01, 4.0, 1000.0]))
    def the_clock_rings(self, late_s: float) -> None:
        self.w.ring(late_s)

    # ---- lies -------------------------------------------------------------------------------

    @rule(seat=st.integers(0, 3), life=st.integers(1, 4), number=st.integers(1, 30))
    def a_parcel_comes_from_nowhere(self, seat: int, life: int, number: int) -> None:
        self.w.lie_about_parcels(seat % self.w.plan.seats, life, [number])

    @rule(pick=st.integers(0, 30))
    def a_parcel_comes_twice(self, pick: int) -> None:
        waiting = sorted(self.w.sealed)
        for worker in self._workers(pick):
            if waiting:
                self.w.lie_about_parcels(*worker.key, waiting[pick % len(waiting) :])

    @rule(pick=st.integers(0, 30), number=st.integers(1, 30))
    def the_departed_speak(self, pick: int, number: int) -> None:
        if self.w.departed:
            seat, life = self.w.departed[pick % len(self.w.departed)]
            self.w.lie_about_life(seat, life)
            self.w.lie_about_epoch(seat, life, self.w.epoch)
            self.w.lie_about_parcels(seat, life, [number])

    @rule(pick=picks, back=st.integers(1, 2))
    def an_old_epoch_is_said_to_begin(self, pick: int, back: int) -> None:
        for worker in self._workers(pick):
            self.w.lie_about_epoch(worker.seat, worker.life, self.w.epoch - back)
            self.w.lie_about_life(worker.seat, worker.life)

    @rule(seat=st.integers(0, 3), life=st.integers(1, 9), number=st.integers(0, 30), step=steps)
    def somebody_is_seen_who_is_not_there(
        self, seat: int, life: int, number: int, step: int
    ) -> None:
        self.w.lie_about_looks(seat % self.w.plan.seats, life, number, step)

    @rule(seat=st.integers(0, 3), life=st.integers(1, 3), lease=leases)
    def a_lease_is_given_back_that_nobody_kept(self, seat: int, life: int, lease: Lease) -> None:
        self.w.lie_about_lease(seat % self.w.plan.seats, life, lease)
        for (seat_of, life_of), past in self.w.slabs.past[-3:]:  # twice
            self.w.lie_about_lease(seat_of, life_of, past)

    # ---- the end ----------------------------------------------------------------------------

    @precondition(lambda self: not self.w.closed and self.w.epoch > 0)
    @rule(sure=st.integers(0, 5))
    def the_loader_is_closed(self, sure: int) -> None:
        if sure == 0:  # seldom: little can happen afterwards
            self.w.close()

    def teardown(self) -> None:
        """Faults stop here: the epoch must end, the next one too, and then everything goes."""
        world = self.world
        if world is None:
            return
        if not world.closed:
            world.settle()
            if not world.broken:
                self._begin_epoch(9, set())
                world.settle()
            world.close()
        world.settle_closed()


SupervisorMachine.TestCase.settings = settings(
    max_examples=100,
    stateful_step_count=50,
    derandomize=True,
    deadline=None,
    # Shrinking a long story takes minutes, and one failure is enough to begin with.
    report_multiple_bugs=False,
    phases=[Phase.generate, Phase.shrink],
)
TestEveryEpochEndsAndNothingIsLost = SupervisorMachine.TestCase

WALKS = 70  # a test


@pytest.mark.parametrize("first", some_of(range(0, 700, WALKS), 2))
def test_every_walk_arrives(first: int) -> None:
    for seed in range(first, first + WALKS):
        walk = Walk(seed)
        try:
            walk.go(60)
            walk.arrive()
        except Exception as error:
            error.add_note(f"on the walk with seed {seed}, {walk.world.plan}")
            for entry in list(walk.world.sup.event_log)[-20:]:
                error.add_note(str(entry))
            raise
