"""Slots and bundles by themselves: who may use which memory, and how many tickets travel."""

from __future__ import annotations

from collections import Counter
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from antifreeze._core.bundling import BundleSize
from antifreeze._core.limits import LIMITS
from antifreeze._core.slab_leases import Lease, LeaseState, LeaseTable

quick = settings(max_examples=150, derandomize=True, deadline=None)

# ---- leases ---------------------------------------------------------------------------------


class LeaseMachine(RuleBasedStateMachine):
    """Lend, seal, keep, spoil and free at random; compare with a dict."""

    CAPACITY = 4

    def __init__(self) -> None:
        super().__init__()
        self.table = LeaseTable(self.CAPACITY)
        self.held: dict[Lease, LeaseState] = {}
        self.past: list[Lease] = []
        self.spoiled: set[int] = set()  # free slots whose memory somebody else may read

    def _any(self, pick: int, *states: LeaseState) -> list[Lease]:
        fit = [lease for lease, state in self.held.items() if state in states]
        return [fit[pick % len(fit)]] if fit else []

    @rule()
    def lend(self) -> None:
        lease = self.table.lend()
        if len(self.held) == self.CAPACITY:
            assert lease is None, "it lent more than there is"
            return
        assert lease is not None
        assert lease not in self.held and lease not in self.past
        assert lease.slot not in {held.slot for held in self.held}
        assert lease.generation == 1 + sum(past.slot == lease.slot for past in self.past)
        assert lease.renewed == (lease.slot in self.spoiled)
        self.spoiled.discard(lease.slot)
        self.held[lease] = LeaseState.LENT

    @rule(pick=st.integers(0, 9))
    def seal(self, pick: int) -> None:
        for lease in self._any(pick, LeaseState.LENT):
            self.table.seal(lease)
            self.held[lease] = LeaseState.SEALED

    @rule(pick=st.integers(0, 9))
    def keep(self, pick: int) -> None:
        for lease in self._any(pick, LeaseState.SEALED):
            self.table.keep(lease)
            self.held[lease] = LeaseState.KEPT

    @rule(pick=st.integers(0, 9))
    def spoil(self, pick: int) -> None:
        for lease in self._any(pick, LeaseState.KEPT, LeaseState.SPOILED):
            self.table.spoil(lease)
            self.held[lease] = LeaseState.SPOILED

    @rule(pick=st.integers(0, 9))
    def free(self, pick: int) -> None:
        for lease in self._any(pick, *self.held.values()):
            self.table.free(lease)
            self.past.append(lease)
            if self.held.pop(lease) is LeaseState.SPOILED:
                self.spoiled.add(lease.slot)

    @precondition(lambda self: self.past)
    @rule(pick=st.integers(0, 99))
    def nobody_uses_an_outdated_lease(self, pick: int) -> None:
        old = self.past[pick % len(self.past)]
        assert self.table.state(old) is LeaseState.FREE
        if any(held.slot == old.slot for held in self.held):
            for use in (self.table.seal, self.table.keep, self.table.spoil, self.table.free):
                with pytest.raises(ValueError, match="outdated"):
                    use(old)

    @invariant()
    def it_is_sound_and_agrees(self) -> None:
        assert list(self.table.unsound()) == []
        assert self.table.capacity == self.CAPACITY
        counted = Counter(self.held.values())
        for state in set(LeaseState) - {LeaseState.FREE}:
            assert self.table.count(state) == counted[state]
        assert self.table.count(LeaseState.KEPT, LeaseState.SPOILED) == (
            counted[LeaseState.KEPT] + counted[LeaseState.SPOILED]
        )
        for lease, state in self.held.items():
            assert self.table.state(lease) is state


LeaseMachine.TestCase.settings = settings(quick, max_examples=60, stateful_step_count=40)
TestLeasesAreHeldOnceAndNeverLost = LeaseMachine.TestCase


def _lent(table: LeaseTable) -> Lease:
    lease = table.lend()
    assert lease is not None
    return lease


def test_a_slab_that_the_loop_keeps_is_neither_lent_nor_written_to() -> None:
    table = LeaseTable(1)
    lease = _lent(table)
    table.seal(lease)
    table.keep(lease)
    assert table.lend() is None
    with pytest.raises(KeyError):
        table.seal(lease)
    table.free(lease)
    assert table.lend() == Lease(lease.slot, lease.generation + 1)


def test_a_spoiled_slab_is_renewed_once() -> None:
    table = LeaseTable(2)
    lease = _lent(table)
    table.seal(lease)
    table.keep(lease)
    table.spoil(lease)
    table.spoil(lease)  # forked twice meanwhile
    table.free(lease)
    again = _lent(table)
    assert again == Lease(lease.slot, 2, renewed=True)
    table.free(again)
    assert _lent(table) == Lease(lease.slot, 3)


def test_what_nobody_looks_at_cannot_be_spoiled() -> None:
    table = LeaseTable(1)
    lease = _lent(table)
    with pytest.raises(KeyError):
        table.spoil(lease)
    table.seal(lease)
    with pytest.raises(KeyError):
        table.spoil(lease)


def test_as_few_slots_as_possible_are_in_use() -> None:
    table = LeaseTable(1000)
    first, second = _lent(table), _lent(table)
    table.free(first)
    table.free(second)
    for generation in range(2, 50):
        lease = _lent(table)
        assert lease == Lease(second.slot, generation)
        table.free(lease)
    assert len(table._states) == 2


# ---- the pace -------------------------------------------------------------------------------

TINY_S = 1e-6


def _hurried(longest: int = LIMITS.bundles.tickets) -> BundleSize:
    pace = BundleSize(longest)
    for _ in range(50):
        pace.learn(TINY_S * pace.tickets, pace.tickets)
    return pace


def test_bundles_grow_where_batches_are_tiny_and_never_more_than_twofold() -> None:
    pace = BundleSize()
    before = [pace.tickets]
    for _ in range(50):
        pace.learn(TINY_S * pace.tickets, pace.tickets)
        assert before[-1] <= pace.tickets <= 2 * before[-1]
        before.append(pace.tickets)
    assert before[0] == before[1] == 1, "one measurement decides nothing"
    assert before[-1] == LIMITS.bundles.tickets


def test_a_bundle_takes_about_a_millisecond() -> None:
    pace = BundleSize()
    for _ in range(100):
        pace.learn(1e-4 * pace.tickets, pace.tickets)
    assert pace.tickets == pytest.approx(LIMITS.bundles.load_s / 1e-4, abs=1)


def test_a_batch_of_a_millisecond_or_more_travels_alone() -> None:
    pace = BundleSize()
    for _ in range(100):
        pace.learn(1.1 * LIMITS.bundles.load_s, 1)
        assert pace.tickets == 1


def test_one_slow_batch_is_enough_to_be_careful() -> None:
    pace = _hurried()
    pace.learn(1.0, 1)
    assert pace.tickets == 1


def test_after_something_large_the_bundles_grow_anew() -> None:
    pace = _hurried()
    pace.slow_down()
    assert pace.tickets == 1
    pace.learn(TINY_S, 1)
    assert pace.tickets == 1
    for _ in range(50):
        pace.learn(TINY_S * pace.tickets, pace.tickets)
    assert pace.tickets == LIMITS.bundles.tickets


def test_after_a_loss_the_pace_stays_slow_until_the_next_epoch() -> None:
    pace = _hurried()
    pace.stay_slow()
    for _ in range(50):
        pace.learn(TINY_S, 1)
        assert pace.tickets == 1
    pace.reset()
    assert pace.tickets == 1
    for _ in range(50):
        pace.learn(TINY_S * pace.tickets, pace.tickets)
    assert pace.tickets == LIMITS.bundles.tickets


def test_what_was_learnt_stays_for_the_next_epoch() -> None:
    pace = _hurried()
    pace.reset()
    assert pace.tickets == LIMITS.bundles.tickets


@pytest.mark.parametrize("longest", [1, 2, 3, 7, LIMITS.bundles.tickets])
def test_no_bundle_is_longer_than_it_may_be(longest: int) -> None:
    assert _hurried(longest).tickets == longest


@pytest.mark.parametrize(
    ("each", "tickets"),
    [
        (0, LIMITS.bundles.tickets),
        (1, LIMITS.bundles.tickets),
        (LIMITS.bundles.slab_bytes // LIMITS.bundles.tickets, LIMITS.bundles.tickets),
        (LIMITS.bundles.slab_bytes // LIMITS.bundles.tickets + 1, LIMITS.bundles.tickets - 1),
        (LIMITS.bundles.slab_bytes // 5, 5),
        (LIMITS.bundles.slab_bytes // 2, 2),
        (LIMITS.bundles.slab_bytes // 2 + 1, 1),
        (LIMITS.bundles.slab_bytes, 1),
        (100 * LIMITS.bundles.slab_bytes, 1),
    ],
)
def test_the_slabs_of_a_bundle_hold_no_more_than_they_may(each: int, tickets: int) -> None:
    pace = BundleSize()
    for _ in range(50):
        pace.learn(TINY_S * pace.tickets, pace.tickets, each * pace.tickets)
        assert pace.tickets * each <= LIMITS.bundles.slab_bytes or pace.tickets == 1
    assert pace.tickets == tickets


def test_one_large_batch_is_enough_to_be_careful_and_is_forgotten_slowly() -> None:
    pace = _hurried()
    pace.learn(TINY_S, 1, LIMITS.bundles.slab_bytes // 2)
    assert pace.tickets == 2
    grown = []
    for _ in range(50):
        pace.learn(TINY_S * pace.tickets, pace.tickets, 64 * pace.tickets)
        grown.append(pace.tickets)
    assert grown == sorted(grown)
    assert grown[2] <= 4, "one small batch after a large one says little"
    assert grown[-1] == LIMITS.bundles.tickets


def test_a_pace_of_one_learns_nothing_from_sizes_either() -> None:
    pace = BundleSize(1)
    for size in (0, 1, LIMITS.bundles.slab_bytes, 0, 0, 0):
        pace.learn(TINY_S, 1, size)
        assert pace.tickets == 1


def test_a_clock_that_stands_still_leads_to_the_longest_bundles() -> None:
    """Virtual time does, and so may a coarse clock, for as long as it likes."""
    pace = BundleSize()
    for _ in range(10_000):
        pace.learn(0.0, pace.tickets)
    assert pace.tickets == LIMITS.bundles.tickets


@quick
@given(
    st.lists(
        st.tuples(st.floats(0, 1e6), st.integers(1, LIMITS.bundles.tickets), st.integers(0, 2**40))
        | st.sampled_from(["slow", "reset"]),
        max_size=100,
    )
)
def test_whatever_is_measured_a_bundle_has_a_ticket_and_not_too_many(steps: list[Any]) -> None:
    pace = BundleSize()
    for step in steps:
        before = pace.tickets
        if step == "slow":
            pace.slow_down()
        elif step == "reset":
            pace.reset()
        else:
            pace.learn(*step)
            _, parcels, slab_bytes = step
            assert (
                pace.tickets == 1
                or pace.tickets * slab_bytes <= LIMITS.bundles.slab_bytes * parcels
            )
        assert 1 <= pace.tickets <= min(2 * before, LIMITS.bundles.tickets)


@quick
@given(
    st.integers(1, 12),
    st.integers(0, 60),
    st.integers(0, 40),
    st.lists(st.sampled_from(["tiny", "large", "ask"]), max_size=60),
)
def test_beyond_what_is_free_a_batch_is_drawn_for_each_that_the_loop_receives(
    window: int, free: int, learnt: int, steps: list[str]
) -> None:
    """As torch draws: a window at first, and then one whenever the loop receives one."""
    pace = BundleSize()
    for _ in range(learnt):
        pace.learn(0.0, pace.tickets)
    pace.reset(LIMITS.bundles.tickets, free)
    drawn = released = received = 0

    def draw() -> None:
        nonlocal drawn
        while count := pace.to_draw(window, drawn - released, drawn):
            drawn += count

    draw()
    for step in steps:
        if step == "ask" or released > received:
            if released == received:
                released += min(pace.to_release(window, released), drawn - released)
                draw()
            received += 1
        elif step == "tiny":
            pace.learn(0.0, pace.tickets)
            draw()
        else:
            pace.slow_down()
        by_torch = received + window
        assert drawn <= max(free, by_torch)
        if by_torch > free:
            assert drawn == by_torch
