"""Slabs from hand to hand: a worker writes, the loop looks, and only then is it used again."""

from __future__ import annotations

from dataclasses import replace

import pytest

from antifreeze._core.commands import SendTickets
from antifreeze._core.events import EpochBegun, LeasesReturned, LifeReady
from antifreeze._core.limits import LIMITS, Limits
from antifreeze._core.loader_plan import Plan, Source, Tenure
from antifreeze._core.slab_leases import LeaseState

from .script import (
    ASK,
    CLOSE,
    DRAW,
    FINISH,
    FORK,
    RING,
    Script,
    begin_epoch,
    deliver,
    drawn,
    drop,
    epoch_asked,
    in_slab,
    kill,
    loaded,
    returned,
    send,
    start,
    stop,
    ticket,
)

MANY = 1000  # batches: more than any script here draws
ONE = Plan(seats=1, window=1)
STAYING = Plan(seats=1, window=1, tenure=Tenure.LOADER)


def looks_at(s: Script, number: int, slot: int | None = None, generation: int = 1) -> None:
    """Load a ticket into a slab, give it to the loop, and deal the next ticket, of one seat."""
    s.tell(in_slab(0, number))
    s.tell(
        ASK, deliver(number), send(0, ticket(number + 1, number), slot=slot, generation=generation)
    )


def kept(s: Script) -> int:
    return len(s.sup._ledger.kept)


# ---- kept and returned ----------------------------------------------------------------------


def test_a_parcel_without_a_slab_leaves_its_slot_when_it_is_delivered() -> None:
    s = Script(ONE, batches=MANY).begin().ready(0)
    for number in (1, 2, 3):
        s.loaded(0, number)
        again = ticket(number + 1, number)
        s.tell(ASK, deliver(number), send(0, again, slot=0, generation=number + 1))
    assert kept(s) == 0


def test_a_slab_that_the_loop_looks_at_is_not_used_until_it_comes_back() -> None:
    s = Script(ONE, batches=MANY).begin().ready(0)
    looks_at(s, 1, slot=1)
    looks_at(s, 2, slot=2)
    s.tell(returned(0, 0))
    looks_at(s, 3, slot=0, generation=2)
    s.tell(returned(0, 2))
    s.tell(returned(0, 1))
    looks_at(s, 4, slot=1, generation=2)  # the one that came back last
    assert kept(s) == 1


def test_a_run_of_small_parcels_frees_all_of_its_slots() -> None:
    s = Script(Plan(seats=1, window=2), batches=4).taught(2).begin().ready(0)
    s.tell(loaded(0, 1, 2, 3, 4))
    s.tell(ASK, deliver(1, 2))
    s.tell(ASK, deliver(3, 4))
    (seat,) = s.sup._seats.all
    assert seat.life is not None
    assert seat.life.leases.count(LeaseState.FREE) == 4


# One slab is kept (slot 0), one is sealed (slot 1), one is lent (slot 2) of life 1 of seat 0.
LIES = {
    "twice": returned(0, 3),
    "waiting for the loop": returned(0, 1),
    "not even loaded": returned(0, 2),
    "an older generation": returned(0, 0, 0),
    "a later generation": returned(0, 0, 2),
    "no such slot": returned(0, 99),
    "no such slot before the first": returned(0, -1),
    "a life to come": returned(0, 0, life=2),
    "another seat": returned(1, 0),
}


@pytest.mark.parametrize("lie", LIES.values(), ids=LIES)
def test_what_the_loop_does_not_keep_is_not_its_to_return(lie: LeasesReturned) -> None:
    s = Script(Plan(seats=2, window=4), batches=MANY)
    s.begin().ready(0, 1)
    (seat, _) = s.sup._seats.all
    assert seat.life is not None
    s.tell(ASK)
    s.tell(in_slab(0, 1), deliver(1), send(0, ticket(5, 4), slot=2))
    s.tell(in_slab(0, 3))
    counts = (LeaseState.KEPT, LeaseState.SEALED, LeaseState.LENT, LeaseState.FREE)
    before = [seat.life.leases.count(state) for state in counts]
    assert before == [1, 1, 1, 0]
    s.tell(lie)
    assert [seat.life.leases.count(state) for state in counts] == before
    s.tell(returned(0, 0))
    s.tell(returned(0, 0))  # again
    assert seat.life.leases.count(LeaseState.FREE) == 1
    assert kept(s) == 0


def test_slot_and_generation_say_which_lease_comes_back() -> None:
    """Whether its memory was new is for the worker to know, not for whoever returns it."""
    s = Script(ONE, batches=MANY).begin().ready(0)
    looks_at(s, 1)
    s.tell(returned(0, 0))
    assert kept(s) == 0
    looks_at(s, 2, slot=0, generation=2)
    s.tell(FORK)
    s.tell(returned(0, 1))
    s.tell(in_slab(0, 3))
    s.tell(ASK, deliver(3), send(0, ticket(4, 3), slot=1, generation=2, renewed=True))


def test_a_slab_of_a_parcel_that_is_dropped_is_free_at_once() -> None:
    s = Script(STAYING, batches=MANY).begin().ready(0)
    s.tell(in_slab(0, 1))
    s.refill(MANY)
    again = ticket(2, 0, epoch=1)
    s.tell(epoch_asked(1), drop(1), begin_epoch(0, 1), send(0, again, slot=0, generation=2))
    s.tell(returned(0, 0))  # the loop never had it
    s.tell(EpochBegun(0, 1, 1))
    s.loaded(0, 2)


def test_a_slab_of_a_parcel_that_comes_too_late_is_free() -> None:
    s = Script(STAYING, batches=MANY).begin().ready(0)
    s.refill(MANY)
    s.tell(epoch_asked(1), begin_epoch(0, 1), send(0, ticket(2, 0, epoch=1), slot=1))
    s.tell(in_slab(0, 1), drop(1))
    s.tell(EpochBegun(0, 1, 1))
    s.tell(in_slab(0, 2))
    s.tell(ASK, deliver(2), send(0, ticket(3, 1, epoch=1), slot=0, generation=2))


def test_a_large_batch_ends_the_bundles() -> None:
    s = Script(Plan(seats=1, window=1), batches=None).taught(4).begin().ready(0)
    s.perform(drawn(0, 1, 2, 3))
    s.tell(in_slab(0, 1, work_s=1e-6, each=LIMITS.bundles.slab_bytes))
    s.tell(loaded(0, 2, 3, 4))
    for number in (1, 2, 3):
        s.tell(ASK, deliver(number))
    s.tell(ASK, deliver(4), DRAW)


# ---- copied at the limit --------------------------------------------------------------------


def test_what_the_loop_keeps_beyond_the_limit_is_copied_for_it() -> None:
    s = Script(ONE, batches=MANY).begin().ready(0)
    assert ONE.kept == 3
    looks_at(s, 1, slot=1)
    looks_at(s, 2, slot=2)
    looks_at(s, 3, slot=3)
    for number, generation in ((4, 2), (5, 3)):  # slot 3 is used again at once
        s.tell(in_slab(0, number))
        again = send(0, ticket(number + 1, number), slot=3, generation=generation)
        s.tell(ASK, deliver(number, copied=True), again)
    s.tell(returned(0, 3, 2))  # it has a copy: nothing to return
    assert kept(s) == 3
    s.tell(returned(0, 1))
    looks_at(s, 6, slot=1, generation=2)
    assert kept(s) == 3


def test_a_small_parcel_is_never_copied() -> None:
    s = Script(ONE, batches=MANY).begin().ready(0)
    for number in (1, 2, 3):
        looks_at(s, number)
    s.loaded(0, 4)
    s.tell(ASK, deliver(4), send(0, ticket(5, 4), slot=3, generation=2))


def test_slabs_of_the_dead_count_until_the_loop_lets_go() -> None:
    s = Script(ONE, batches=MANY).begin().ready(0)
    for number in (1, 2, 3):
        looks_at(s, number)
    s.dies(0, start(0, life=2), send(0, ticket(5, 3, attempt=2), life=2, slot=0))
    s.ready(0, life=2)
    s.tell(in_slab(0, 5, life=2))
    s.tell(ASK, deliver(5, copied=True), send(0, ticket(6, 4), life=2, slot=0, generation=2))
    s.tell(returned(0, 2))  # of life 1
    s.tell(in_slab(0, 6, life=2))
    s.tell(ASK, deliver(6), send(0, ticket(7, 5), life=2, slot=1))


# ---- forks ----------------------------------------------------------------------------------


def test_what_the_loop_looks_at_during_a_fork_is_renewed_before_it_is_used_again() -> None:
    s = Script(ONE, batches=MANY).begin().ready(0)
    looks_at(s, 1, slot=1)
    s.tell(FORK)
    s.tell(returned(0, 0))
    s.tell(in_slab(0, 2))
    s.tell(ASK, deliver(2), send(0, ticket(3, 2), slot=0, generation=2, renewed=True))
    s.tell(in_slab(0, 3))  # into new memory, which the child has never seen
    s.tell(ASK, deliver(3), send(0, ticket(4, 3), slot=2))
    s.tell(returned(0, 0, 2))
    s.loaded(0, 4)
    s.tell(ASK, deliver(4), send(0, ticket(5, 4), slot=2, generation=2))
    s.loaded(0, 5)
    s.tell(ASK, deliver(5), send(0, ticket(6, 5), slot=2, generation=3))


def test_a_slab_is_renewed_once_for_however_many_forks() -> None:
    s = Script(ONE, batches=MANY).begin().ready(0)
    looks_at(s, 1)
    s.tell(FORK)
    s.tell(FORK)
    s.tell(returned(0, 0))
    s.tell(in_slab(0, 2))
    s.tell(ASK, deliver(2), send(0, ticket(3, 2), slot=0, generation=2, renewed=True))
    s.tell(in_slab(0, 3))
    s.tell(ASK, deliver(3), send(0, ticket(4, 3), slot=2))
    s.tell(returned(0, 0, 2))
    looks_at(s, 4, slot=0, generation=3)


def test_a_fork_before_or_after_the_loop_looks_spoils_nothing() -> None:
    s = Script(ONE, batches=MANY).begin().ready(0)
    s.tell(FORK)
    s.tell(in_slab(0, 1))
    s.tell(FORK)  # it waits for the loop
    s.tell(ASK, deliver(1), send(0, ticket(2, 1), slot=1))
    s.tell(returned(0, 0))
    s.tell(FORK)  # it came back
    looks_at(s, 2, slot=0, generation=2)


def test_a_spoiled_slab_of_the_dead_is_nobodys_concern() -> None:
    s = Script(ONE, batches=MANY).begin().ready(0)
    looks_at(s, 1)
    s.tell(FORK)
    s.dies(0, start(0, life=2), send(0, ticket(3, 1, attempt=2), life=2, slot=0))
    s.tell(FORK)
    s.tell(returned(0, 0))
    s.ready(0, life=2).loaded(0, 3, life=2)
    s.tell(ASK, deliver(3), send(0, ticket(4, 2), life=2, slot=0, generation=2))


def test_a_copied_batch_is_not_spoiled() -> None:
    s = Script(ONE, batches=MANY).begin().ready(0)
    for number in (1, 2, 3):
        looks_at(s, number)
    s.tell(in_slab(0, 4))
    s.tell(ASK, deliver(4, copied=True), send(0, ticket(5, 4), slot=3, generation=2))
    s.tell(FORK)
    s.loaded(0, 5)
    s.tell(ASK, deliver(5), send(0, ticket(6, 5), slot=3, generation=3))


# ---- lives and epochs that are gone ---------------------------------------------------------


def test_a_parcel_outlives_the_life_that_loaded_it() -> None:
    s = Script(Plan(seats=1, window=2), batches=2).begin().ready(0)
    s.tell(in_slab(0, 1))
    s.dies(0, start(0, life=2), send(0, ticket(3, 1, attempt=2), life=2, slot=0))
    s.tell(ASK, deliver(1))
    assert kept(s) == 1
    s.ready(0, life=2).tell(in_slab(0, 3, life=2))
    s.tell(ASK, deliver(3))  # the same slot of another life
    assert kept(s) == 2
    s.tell(ASK, stop(0, life=2), FINISH)
    s.tell(returned(0, 0, life=2))
    s.tell(returned(0, 0, life=1))
    assert kept(s) == 0


def test_a_slab_of_a_life_that_is_being_killed_comes_back() -> None:
    s = Script(Plan(seats=1, window=1, limits=Limits(silent_s=5.0)), batches=MANY)
    s.begin().ready(0)
    looks_at(s, 1)
    s.silent(0).at(5.0).tell(
        RING, kill(0), start(0, life=2), send(0, ticket(3, 1, attempt=2), life=2, slot=0)
    )
    s.tell(in_slab(0, 2), drop(2))  # too late
    s.tell(returned(0, 0))
    s.tell(returned(0, 1))  # the loop never had it, and the life may still write there
    assert kept(s) == 0


def test_a_slab_is_kept_beyond_its_epoch_and_used_again_in_a_later_one() -> None:
    s = Script(STAYING, batches=1).begin().ready(0)
    s.tell(in_slab(0, 1))
    s.tell(ASK, deliver(1))
    s.tell(ASK, FINISH)
    for epoch in (1, 2):
        s.refill(1)
        number = epoch + 1
        again = send(0, ticket(number, 0, epoch=epoch), slot=1, generation=epoch)
        s.tell(epoch_asked(epoch), begin_epoch(0, epoch), again)
        s.tell(EpochBegun(0, 1, epoch))
        s.loaded(0, number)
        s.tell(ASK, deliver(number))
        s.tell(ASK, FINISH)
    s.tell(FORK)
    s.tell(returned(0, 0))
    s.refill(1)
    again = send(0, ticket(4, 0, epoch=3), slot=0, generation=2, renewed=True)
    s.tell(epoch_asked(3), begin_epoch(0, 3), again)


def test_an_early_break_takes_nothing_from_the_loop() -> None:
    s = Script(STAYING, batches=MANY).begin().ready(0)
    looks_at(s, 1, slot=1)
    s.refill(MANY)
    s.tell(epoch_asked(1), begin_epoch(0, 1), send(0, ticket(3, 0, epoch=1), slot=2))
    assert kept(s) == 1
    s.tell(EpochBegun(0, 1, 1))  # slot 1 is free, slot 0 is kept
    s.tell(in_slab(0, 3))
    s.tell(ASK, deliver(3), send(0, ticket(4, 1, epoch=1), slot=1, generation=2))
    s.tell(returned(0, 0))
    s.tell(in_slab(0, 4))
    s.tell(ASK, deliver(4), send(0, ticket(5, 2, epoch=1), slot=0, generation=2))


def test_the_loop_may_look_at_a_batch_after_the_close() -> None:
    s = Script(ONE, batches=MANY).begin().ready(0)
    looks_at(s, 1)
    s.tell(CLOSE, stop(0))
    s.tell(FORK)
    s.dies(0)
    assert s.sup.at_rest
    assert kept(s) == 1
    s.tell(returned(0, 0))
    s.tell(returned(0, 0))
    assert kept(s) == 0


# ---- no room --------------------------------------------------------------------------------

SCARCE = Plan(seats=1, window=1, longest_bundle=1, tenure=Tenure.LOADER)


def test_a_ticket_without_room_goes_out_when_a_slab_comes_back() -> None:
    assert (SCARCE.kept, SCARCE.leases_a_life) == (3, 5)
    s = Script(SCARCE, batches=MANY).begin().ready(0)
    for number in (1, 2, 3):
        looks_at(s, number, slot=number)
    again = send(0, ticket(5, 0, epoch=1, drawn=4), slot=4)
    s.tell(epoch_asked(1), begin_epoch(0, 1), again)
    s.tell(epoch_asked(2), begin_epoch(0, 2))  # three slots are with the loop, two with the life
    s.tell(returned(0, 1, 2))  # not that one
    s.tell(returned(0, 1), send(0, ticket(6, 0, epoch=2, drawn=5), slot=1, generation=2))


def test_streams_are_asked_in_turn_also_if_the_next_one_has_no_room() -> None:
    """Who is next must not depend on who was quick."""
    plan = replace(SCARCE, seats=2, source=Source.STREAMS)
    s = Script(plan, batches=MANY)
    most = plan.leases_a_life
    for epoch in range(most):
        sent = send(0, ticket(epoch + 1, 0, epoch=epoch, drawn=epoch))
        assert s.perform(epoch_asked(epoch))[-1] == sent
    s.tell(epoch_asked(most), begin_epoch(0, most), begin_epoch(1, most))
    s.tell(ASK)  # it is the turn of seat 0, and all its slots are out
    first = ticket(most + 1, 0, epoch=most, drawn=most)
    s.ready(1)
    s.tell(LifeReady(0, 1))
    s.tell(EpochBegun(0, 1, most), send(0, first))
    second = ticket(most + 2, 1, epoch=most, drawn=most + 1)
    s.loaded(0, most + 1, deliver(most + 1), send(1, second))


@pytest.mark.parametrize(("longest", "breaks"), [(LIMITS.bundles.tickets, 3), (2, 4), (1, 5)])
def test_a_life_that_hangs_with_all_the_room_is_replaced(longest: int, breaks: int) -> None:
    plan = replace(SCARCE, longest_bundle=longest, limits=Limits(silent_s=5.0))
    s = Script(plan, batches=MANY).taught(plan.longest_bundle).begin().ready(0)
    s.silent(0).perform(ASK)
    for epoch in range(1, breaks + 1):
        s.begin(epoch).perform(ASK)
    (seat,) = s.sup._seats.all
    assert seat.life is not None and not seat.life.held, "there should be no room left"
    assert s.sup.next_wakeup() == 5.0
    condemned, successor, bundle = s.at(5.0).perform(RING)
    assert (condemned, successor) == (kill(0), start(0, life=2, epoch=breaks))
    assert isinstance(bundle, SendTickets)
    assert len(bundle.errands) == plan.longest_bundle
