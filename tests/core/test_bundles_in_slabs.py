"""Bundles of batches that lie in slabs: bounded by their size, and by what the loop may keep."""

from __future__ import annotations

from dataclasses import replace

import pytest

from antifreeze._core.events import EpochBegun
from antifreeze._core.limits import LIMITS
from antifreeze._core.loader_plan import Plan, Tenure
from antifreeze._core.reorder import Order
from antifreeze._core.slab_leases import LeaseState

from .script import (
    ASK,
    FINISH,
    FORK,
    RING,
    Script,
    begin_epoch,
    deliver,
    draw,
    drawn,
    drop,
    epoch_asked,
    failed,
    in_slab,
    loaded,
    returned,
    send,
    start,
    ticket,
)
from .world import TINY_S, World

MANY = 1000  # batches: more than any script here draws
ONE = Plan(seats=1, window=1)
QUARTER = LIMITS.bundles.slab_bytes // 4


def bundled(plan: Plan, batches: int | None = MANY, bundle: int = 4) -> Script:
    """Begin an epoch of a loader whose batches are known to be quick, with all lives up."""
    s = Script(plan, batches).taught(bundle).begin()
    return s.ready(*range(plan.seats))


def kept(s: Script) -> int:
    return len(s.sup._ledger.kept)


def counts(s: Script) -> dict[LeaseState, int]:
    (seat,) = s.sup._seats.all
    assert seat.life is not None
    leases = seat.life.leases
    return {state: leases.count(state) for state in LeaseState if leases.count(state)}


# ---- the pace -------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("each", "most"),
    [
        (4096, LIMITS.bundles.tickets),
        (LIMITS.bundles.slab_bytes // 10, 10),
        (QUARTER, 4),
        (QUARTER + 1, 3),
        (LIMITS.bundles.slab_bytes // 2, 2),
        (LIMITS.bundles.slab_bytes // 2 + 1, 1),
        (LIMITS.bundles.slab_bytes, 1),
        (9 * LIMITS.bundles.slab_bytes, 1),
    ],
)
def test_bundles_grow_until_their_slabs_hold_all_they_may(each: int, most: int) -> None:
    s = Script(ONE, batches=MANY).begin().ready(0)
    (seat,) = s.sup._seats.all
    assert seat.life is not None
    out = [1]  # tickets in a window of one bundle
    for _ in range(20):
        numbers = list(seat.life.held)
        s.perform(in_slab(0, *numbers, work_s=TINY_S * len(numbers), each=each))
        for _ in numbers:
            s.perform(ASK)
            out.append(s.sup._ledger.window.count)
            assert out[-1] * each <= LIMITS.bundles.slab_bytes or out[-1] == 1
            assert out[-1] <= 2 * max(out[:-1])
    assert max(out) == most


def test_a_slab_by_itself_changes_no_pace() -> None:
    s = bundled(Plan(seats=1, window=2), batches=None)
    s.perform(drawn(*range(8)))
    s.tell(in_slab(0, 1, 2, 3, 4, work_s=4 * TINY_S))
    s.tell(ASK, deliver(1, 2, 3, 4), draw(6))  # two bundles of five; four are out


def test_slabs_that_nobody_timed_change_no_pace() -> None:
    s = bundled(ONE, batches=None)
    s.perform(drawn(*range(4)))
    s.tell(in_slab(0, 1, 2, 3, 4, each=LIMITS.bundles.slab_bytes))
    for number in (1, 2, 3):
        s.perform(ASK)
        assert s.sup._bundles.tickets == 4, number


def test_large_slabs_shorten_the_next_bundles_at_once() -> None:
    s = bundled(ONE, batches=None, bundle=8)
    s.perform(drawn(*range(8)))
    s.tell(in_slab(0, *range(1, 9), work_s=8 * TINY_S, each=QUARTER))
    s.tell(ASK, deliver(1, 2, 3))
    s.tell(returned(0, 0, also=(1, 2)))
    s.tell(ASK, deliver(4, 5, 6), draw(2))  # a bundle of four; half of it is out


def test_a_window_taken_literally_has_no_bundles_of_slabs() -> None:
    s = Script(Plan(seats=1, window=2, longest_bundle=1), batches=MANY).begin().ready(0)
    for number in range(1, 20):
        s.tell(in_slab(0, number, work_s=0.0, each=1))
        again = send(0, ticket(number + 2, number + 1))
        s.tell(ASK, deliver(number, copied=number > s.sup.plan.kept), again)


# ---- delivery -------------------------------------------------------------------------------


def test_slabs_of_a_bundle_are_delivered_together_as_far_as_the_loop_may_keep_them() -> None:
    s = bundled(ONE, batches=4)
    s.tell(ASK)
    s.tell(in_slab(0, 1, 2, 3, 4), deliver(1, 2, 3))
    assert counts(s) == {LeaseState.KEPT: 3, LeaseState.SEALED: 1}
    s.tell(returned(0, 0))
    s.tell(ASK, deliver(4))
    assert counts(s) == {LeaseState.KEPT: 3, LeaseState.FREE: 1}


def test_bundles_with_and_without_slabs_keep_their_order() -> None:
    s = bundled(Plan(seats=1, window=3), batches=9)
    s.tell(loaded(0, 1, 2))
    s.tell(in_slab(0, 3, 4))
    s.tell(failed(0, 5))
    s.taught(4)
    s.tell(in_slab(0, 6))
    s.tell(loaded(0, 7, 8, 9))
    for run in ((1, 2, 3, 4), (5, 6, 7, 8), (9,)):
        s.tell(ASK, deliver(*run))


def test_with_overtake_slabs_come_in_order_of_arrival() -> None:
    s = bundled(Plan(seats=2, window=2, order=Order.OVERTAKE), batches=8)
    s.tell(in_slab(1, 2, 4))
    s.tell(loaded(0, 1, 3))
    s.tell(in_slab(1, 6))
    s.tell(ASK, deliver(2, 4, 1, 3))
    s.tell(ASK, deliver(6))


def test_the_loop_keeps_as_many_slabs_of_a_bundle_as_it_may_and_the_rest_is_copied() -> None:
    assert ONE.kept == 3
    s = bundled(ONE, batches=8, bundle=8)
    s.tell(in_slab(0, *range(1, 9)))
    s.tell(ASK, deliver(1, 2, 3))
    for number in (4, 5):
        s.tell(ASK, deliver(number, copied=True))
    assert counts(s) == {LeaseState.KEPT: 3, LeaseState.SEALED: 3, LeaseState.FREE: 2}
    s.tell(returned(0, 1))
    s.tell(returned(0, 3))  # it has a copy of that one: nothing to return
    s.tell(ASK, deliver(6))
    s.tell(ASK, deliver(7, copied=True))
    assert kept(s) == 3
    assert counts(s) == {LeaseState.KEPT: 3, LeaseState.SEALED: 1, LeaseState.FREE: 4}


def test_a_loop_that_lets_go_gets_a_whole_bundle_without_a_copy() -> None:
    s = bundled(ONE, batches=8, bundle=8)
    s.tell(in_slab(0, *range(1, 9)))
    s.tell(ASK, deliver(1, 2, 3))
    s.tell(returned(0, 0, also=(1, 2)))
    assert kept(s) == 0
    s.tell(ASK, deliver(4, 5, 6))
    s.tell(returned(0, 3, also=(4,)))  # the sixth is still in hand
    s.tell(ASK, deliver(7, 8))
    assert counts(s) == {LeaseState.KEPT: 3, LeaseState.FREE: 5}


def test_a_fork_spoils_what_the_loop_keeps_of_a_bundle_and_not_what_waits() -> None:
    s = bundled(ONE, batches=None, bundle=8)
    s.perform(drawn(*range(8)))
    s.tell(in_slab(0, *range(1, 9)))
    s.tell(ASK, deliver(1, 2, 3))
    s.tell(FORK)
    assert counts(s) == {LeaseState.SPOILED: 3, LeaseState.SEALED: 5}
    s.tell(returned(0, 0, also=(1, 2)))
    s.tell(ASK, deliver(4, 5, 6), draw(6))
    s.tell(drawn(*range(8, 14)), send(0, *[ticket(n, n - 1) for n in range(9, 15)]))
    (seat,) = s.sup._seats.all
    assert seat.life is not None
    leases = [errand.lease for errand in seat.life.held.values()]
    assert {lease.slot: lease.renewed for lease in leases} == {
        2: True,
        1: True,
        0: True,
        8: False,
        9: False,
        10: False,
    }


# ---- what is lost and broken off ------------------------------------------------------------


def test_slabs_that_arrived_outlive_the_life_that_died_over_the_rest_of_its_bundle() -> None:
    s = bundled(ONE, batches=4)
    s.tell(in_slab(0, 1, 2))
    again = send(0, ticket(5, 2, attempt=2), ticket(6, 3), life=2)
    s.dies(0, start(0, life=2), again, on=3)
    s.tell(ASK, deliver(1))  # whoever may be next to die is given one ticket at a time
    s.tell(ASK, deliver(2))
    s.ready(0, life=2).tell(in_slab(0, 5, 6, life=2))
    s.tell(ASK, deliver(5))
    s.tell(ASK, deliver(6, copied=True))
    s.tell(returned(0, 0))
    assert kept(s) == 2


def test_a_break_drops_the_slabs_that_wait_and_leaves_the_loop_its_own() -> None:
    s = bundled(replace(ONE, tenure=Tenure.LOADER), batches=4)
    s.tell(in_slab(0, 1))
    s.tell(ASK, deliver(1))
    s.tell(in_slab(0, 2, 3))
    s.refill(0)
    s.tell(epoch_asked(1), drop(2), drop(3), begin_epoch(0, 1))
    s.tell(in_slab(0, 4), drop(4))
    s.tell(EpochBegun(0, 1, 1))
    assert counts(s) == {LeaseState.KEPT: 1, LeaseState.FREE: 3}
    s.tell(ASK, FINISH)
    s.tell(returned(0, 0))
    assert counts(s) == {LeaseState.FREE: 4}


def test_a_bundle_of_slabs_that_partly_counts_is_partly_dropped() -> None:
    s = bundled(ONE, batches=4)
    s.tell(in_slab(0, 1, 99, 2, 1), drop(99))  # one from nowhere, and one twice
    s.tell(ASK, deliver(1, 2))
    assert counts(s) == {LeaseState.KEPT: 2, LeaseState.LENT: 2}
    assert s.sup.next_wakeup() is None
    s.tell(RING)


# ---- whole epochs ---------------------------------------------------------------------------


@pytest.mark.parametrize("looks_back", [0, 2, MANY])
@pytest.mark.parametrize("longest", [1, 2, LIMITS.bundles.tickets])
def test_epochs_of_bundles_in_slabs_come_to_their_end(longest: int, looks_back: int) -> None:
    world = World(Plan(seats=2, window=4, longest_bundle=longest, tenure=Tenure.LOADER), bundle=8)
    world.looks_back = looks_back
    for _ in range(3):
        world.begin_epoch(200)
        world.settle()
        assert len(world.answered) == 200
    world.close()
    world.settle_closed()
