"""Several tickets a message: how bundles grow, travel, break and are delivered."""

from __future__ import annotations

import pytest

from antifreeze._core.commands import DrawTickets, RaiseFault
from antifreeze._core.events import EpochBegun, SamplerEnded, SamplerFailed
from antifreeze._core.faults import Fault, FaultKind
from antifreeze._core.limits import LIMITS, Limits
from antifreeze._core.loader_plan import Plan, Source, Tenure
from antifreeze._core.reorder import Order
from antifreeze._core.worker_slots import SeatState

from .script import (
    ASK,
    CLOSE,
    DRAW,
    FINISH,
    KILLED,
    RING,
    Script,
    begin_epoch,
    deliver,
    draw,
    drawn,
    drop,
    ended,
    epoch_asked,
    failed,
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
TINY_S = 1e-6
LARGE = in_slab(0, 1, work_s=TINY_S, each=LIMITS.bundles.slab_bytes)


def bundled(plan: Plan, batches: int | None = MANY, bundle: int = 4) -> Script:
    """Begin an epoch of a loader whose batches are known to be tiny, with all lives up."""
    s = Script(plan, batches).taught(bundle).begin()
    return s.ready(*range(plan.seats))


def tickets(*numbers: int, epoch: int = 0) -> list:
    """Give first attempts; ticket 1 is at position 0."""
    return [ticket(number, number - 1, epoch=epoch) for number in numbers]


# ---- the pace -------------------------------------------------------------------------------


def test_bundles_grow_while_batches_are_tiny_and_end_at_once_with_a_slow_one() -> None:
    s = Script(Plan(seats=1, window=2))
    s.tell(epoch_asked(), start(0), DRAW)
    s.tell(drawn(0), send(0, *tickets(1)), DRAW)
    s.tell(drawn(1), send(0, *tickets(2)))
    s.ready(0)
    for number in (1, 2):  # two measurements are not enough
        s.tell(ASK)
        s.tell(loaded(0, number, work_s=TINY_S), deliver(number), DRAW)
        s.tell(drawn(number + 1), send(0, *tickets(number + 2)))
    s.tell(ASK)
    s.tell(loaded(0, 3, work_s=TINY_S), deliver(3), draw(3))  # two bundles of two; one is out
    s.tell(drawn(4, 5, 6), send(0, ticket(5, 4), ticket(6, 5), ticket(7, 6)))
    s.tell(ASK)
    s.tell(loaded(0, 4, 5, work_s=2 * TINY_S), deliver(4, 5), draw(4))  # two of three; two out
    s.tell(drawn(7, 8, 9, 10), send(0, *tickets(8, 9, 10, 11)))
    s.tell(ASK)
    s.tell(loaded(0, 6, work_s=1.0), deliver(6))  # five are out, two are enough now
    for number in (7, 8, 9):
        s.tell(ASK)
        s.tell(loaded(0, number), deliver(number))
    s.tell(ASK)
    s.tell(loaded(0, 10), deliver(10), DRAW)
    s.tell(drawn(11), send(0, *tickets(12)))


@pytest.mark.parametrize("event", [LARGE, failed(0, 1), loaded(0, 1, work_s=1.0)])
def test_something_large_wrong_or_slow_ends_all_bundles(event: object) -> None:
    s = bundled(Plan(seats=1, window=2))
    s.tell(event)
    for number in range(1, 7):
        s.tell(ASK, deliver(number))  # one a time, and no more are drawn
        s.tell(loaded(0, number + 1))
    s.tell(ASK, deliver(7), send(0, *tickets(9)))  # ... until fewer than two are out


def test_parcels_that_nobody_timed_change_no_pace() -> None:
    s = bundled(Plan(seats=1, window=2), batches=None)
    s.tell(drawn(*range(8)), send(0, *tickets(*range(1, 9))))
    s.tell(loaded(0, 1, 2, 3, 4))
    s.tell(ASK, deliver(1, 2, 3, 4), draw(4))


def test_a_liar_does_not_set_the_pace() -> None:
    s = bundled(Plan(seats=1, window=2), batches=None)
    s.tell(drawn(*range(8)), send(0, *tickets(*range(1, 9))))
    s.tell(loaded(0, 99, work_s=1.0), drop(99))
    s.tell(loaded(0, 1, life=7, work_s=1.0), drop(1))
    s.tell(loaded(0, 1, 2, 3, 4))
    s.tell(ASK, deliver(1, 2, 3, 4), draw(4))


# ---- drawing and dealing --------------------------------------------------------------------


def test_every_seat_has_a_ticket_before_one_has_two_and_each_gets_one_message() -> None:
    s = Script(Plan(seats=3, window=3)).taught(3)
    s.tell(epoch_asked(), start(0), start(1), start(2), draw(9))
    s.tell(
        drawn(*range(9)),
        send(0, *tickets(1, 4, 7)),
        send(1, *tickets(2, 5, 8)),
        send(2, *tickets(3, 6, 9)),
    )


def test_a_sampler_that_gives_less_is_asked_again() -> None:
    s = Script(Plan(seats=2, window=2)).taught(4)
    s.tell(epoch_asked(), start(0), start(1), draw(8))
    s.tell(drawn(0), send(0, *tickets(1)), draw(7))
    s.tell(drawn(1, 2), send(1, *tickets(2)), send(0, *tickets(3)), draw(5))
    s.tell(drawn(3), send(1, *tickets(4)), draw(4))
    s.tell(drawn(4), send(0, *tickets(5)))  # more than half of the window is out
    s.ready(0, 1)
    s.tell(ASK)
    s.tell(loaded(0, 1), deliver(1), draw(4))
    s.tell(SamplerEnded())


def test_the_window_is_filled_again_when_half_of_it_is_free() -> None:
    s = bundled(Plan(seats=1, window=2), batches=None)
    s.tell(drawn(*range(8)), send(0, *tickets(*range(1, 9))))
    for number in (1, 2, 3):
        s.tell(ASK)
        s.tell(loaded(0, number), deliver(number))
    s.tell(ASK)
    s.tell(loaded(0, 4), deliver(4), draw(4))
    s.tell(drawn(*range(8, 12)), send(0, *tickets(9, 10, 11, 12)))


def test_an_epoch_that_ends_within_a_bundle_is_over_after_it() -> None:
    s = bundled(Plan(seats=2, window=2), batches=5)
    s.tell(loaded(0, 1, 3, 5))
    s.tell(ASK, deliver(1))
    s.tell(ASK)
    s.tell(loaded(1, 2, 4), deliver(2, 3, 4, 5))
    s.tell(ASK, stop(0), stop(1), FINISH)
    assert s.sup.progress.delivered == 5


# ---- runs -----------------------------------------------------------------------------------


def test_what_is_due_is_delivered_in_a_run_no_longer_than_a_bundle() -> None:
    s = bundled(Plan(seats=1, window=2), batches=8)
    s.tell(loaded(0, 1, 2, 3, 4, 5, 6))
    s.tell(ASK, deliver(1, 2, 3, 4))
    assert s.sup.progress.delivered == 4
    s.tell(ASK, deliver(5, 6))
    s.tell(ASK)
    s.tell(loaded(0, 7, 8), deliver(7, 8))
    s.tell(ASK, stop(0), FINISH)


def test_a_run_is_in_the_order_of_the_sampler_whoever_was_quick() -> None:
    s = bundled(Plan(seats=2, window=2), batches=8)
    s.tell(loaded(1, 2, 4, 6, 8))
    s.tell(ASK)
    s.tell(loaded(0, 1, 3), deliver(1, 2, 3, 4))
    s.tell(ASK)
    s.tell(loaded(0, 7))  # out of turn: 5 is due
    s.tell(loaded(0, 5), deliver(5, 6, 7, 8))


def test_a_run_ends_before_the_error_of_a_sampler() -> None:
    s = Script(Plan(seats=1, window=2)).taught(4)
    s.tell(epoch_asked(), start(0), draw(8))
    s.tell(drawn(0, 1), send(0, *tickets(1, 2)), draw(6))
    s.tell(SamplerFailed(), draw(5))
    s.tell(drawn(3, 4), send(0, *tickets(4, 5)))
    s.ready(0)
    s.tell(loaded(0, 1, 2, 4, 5))
    s.tell(ASK, deliver(1, 2), draw(5))
    s.tell(SamplerEnded())
    s.tell(ASK, RaiseFault(Fault(FaultKind.SAMPLER)))
    s.tell(ASK, deliver(4, 5))
    s.tell(ASK, stop(0), FINISH)
    assert s.sup.progress.delivered == 5


def test_a_run_ends_before_a_crash_that_is_raised() -> None:
    plan = Plan(seats=1, window=2, limits=Limits(attempts=1), tenure=Tenure.LOADER)
    s = bundled(plan, batches=4)
    s.tell(loaded(0, 1))
    s.dies(0, start(0, life=2), send(0, ticket(5, 2), ticket(6, 3), life=2), on=2)
    s.ready(0, life=2).tell(loaded(0, 5, 6, life=2))
    s.taught(4)
    s.tell(ASK, deliver(1))
    crash = Fault(FaultKind.CRASH, seat=0, life=1, ticket=ticket(2, 1), ending=KILLED)
    s.tell(ASK, RaiseFault(crash))
    s.tell(ASK, deliver(5, 6))


def test_a_run_may_lie_in_slabs_and_in_messages() -> None:
    s = bundled(Plan(seats=1, window=2), batches=6)
    s.tell(loaded(0, 1, 2))
    s.tell(in_slab(0, 3))
    s.tell(in_slab(0, 4))
    s.tell(loaded(0, 5, 6))
    s.taught(8)
    s.tell(ASK, deliver(1, 2, 3, 4, 5, 6))


def test_a_run_ends_where_the_loop_would_keep_too_many_slabs() -> None:
    plan = Plan(seats=1, window=2)
    assert plan.kept == 4
    s = bundled(plan, batches=8)
    s.tell(in_slab(0, 1, 2, 3, 4, 5, 6))
    s.taught(8)
    s.tell(ASK, deliver(1, 2, 3, 4))
    s.tell(ASK, deliver(5, copied=True))
    s.tell(returned(0, 1))
    s.tell(ASK, deliver(6))


def test_an_exception_of_the_dataset_travels_in_a_run_like_a_batch() -> None:
    s = bundled(Plan(seats=1, window=2), batches=4)
    s.tell(loaded(0, 1))
    s.tell(failed(0, 2))
    s.tell(loaded(0, 3, 4))
    s.taught(4)
    s.tell(ASK, deliver(1, 2, 3, 4))


def test_with_overtake_a_run_is_in_order_of_arrival_and_the_quick_get_more() -> None:
    s = bundled(Plan(seats=2, window=2, order=Order.OVERTAKE))
    s.tell(loaded(1, 2, 4))
    s.tell(loaded(0, 1))
    s.tell(loaded(1, 6))
    s.tell(
        ASK,
        deliver(2, 4, 1, 6),  # seat 0 owes three, seat 1 one
        send(1, *tickets(9, 10, 12)),
        send(0, *tickets(11)),
    )


def test_with_overtake_a_run_ends_before_a_fault() -> None:
    s = Script(Plan(seats=1, window=2, order=Order.OVERTAKE)).taught(4)
    s.tell(epoch_asked(), start(0), draw(8))
    s.tell(drawn(0, 1), send(0, *tickets(1, 2)), draw(6))
    s.tell(SamplerFailed(), draw(5))
    s.tell(drawn(3), send(0, *tickets(4)), draw(4))
    s.tell(SamplerEnded())
    s.ready(0)
    s.tell(loaded(0, 4, 2, 1))
    s.tell(ASK, deliver(4, 2, 1))  # the error overtakes nothing, and nothing that was before it
    s.tell(ASK, RaiseFault(Fault(FaultKind.SAMPLER)))
    s.tell(ASK, stop(0), FINISH)


def test_a_timeout_names_the_ticket_within_the_bundle_that_is_awaited() -> None:
    s = bundled(Plan(seats=2, window=2, timeout_s=3.0), batches=8)
    s.tell(loaded(0, 1, 3))
    s.tell(loaded(1, 2))
    s.tell(ASK, deliver(1, 2, 3))
    s.tell(ASK)
    late = Fault(FaultKind.TIMEOUT, seat=1, life=1, ticket=ticket(4, 3), delivered=3, seconds=3.0)
    held = (ticket(4, 3), ticket(6, 5), ticket(8, 7))
    s.at(3.0).tell(RING, RaiseFault(late, held))


# ---- streams --------------------------------------------------------------------------------


def streams(seats: int, window: int, tenure: Tenure = Tenure.EPOCH) -> Plan:
    return Plan(seats=seats, window=window, source=Source.STREAMS, tenure=tenure)


def test_streams_are_asked_in_turn_within_a_bundle_and_delivered_in_turn() -> None:
    s = Script(streams(2, 2), batches=MANY).taught(4)
    s.tell(
        epoch_asked(),
        start(0),
        start(1),
        send(0, *tickets(1, 3, 5, 7)),
        send(1, *tickets(2, 4, 6, 8)),
    )
    s.ready(0, 1)
    s.tell(loaded(1, 2, 4, 6))
    s.tell(ASK)
    s.tell(
        loaded(0, 1, 3),
        deliver(1, 2, 3, 4),
        send(0, *tickets(9, 11)),  # in turn, although seat 0 owes more
        send(1, *tickets(10, 12)),
    )
    s.tell(ASK)
    s.tell(loaded(0, 5, 7), deliver(5, 6, 7))


def test_the_end_of_a_stream_voids_the_rest_of_its_bundle() -> None:
    s = bundled(streams(2, 2, Tenure.EPOCH))
    s.tell(loaded(0, 1, 3))
    s.ended(0, 5, stop(0))
    assert s.sup.snapshot().seats[0].state is SeatState.SPENT
    s.tell(loaded(1, 2, 4, 6))
    s.tell(ended(0, 7), drop(7))  # it was asked before it ended
    s.taught(4)
    s.tell(ASK, deliver(1, 2, 3, 4), send(1, *tickets(9, 10, 11, 12, 13, 14)))
    s.tell(ASK, deliver(6))  # 5 and 7 are void
    s.tell(ASK)
    s.tell(loaded(1, 8, 9), deliver(8, 9))


def test_a_stream_that_breaks_off_within_a_bundle_is_raised_once_and_in_turn() -> None:
    s = bundled(streams(2, 2))
    s.tell(loaded(0, 1))
    s.dies(0, on=5)  # whatever it says: its stream is lost from position 2 on
    s.tell(loaded(1, 2, 4))
    s.tell(ASK, deliver(1, 2), send(1, *tickets(9, 10, 11, 12)))
    lost = Fault(FaultKind.STREAM_LOST, seat=0, life=1, ticket=ticket(3, 2), ending=KILLED)
    s.tell(ASK, RaiseFault(lost))
    s.tell(ASK, deliver(4))
    s.tell(ASK)
    s.tell(loaded(1, 6, 8), deliver(6, 8), send(1, *tickets(13, 14, 15, 16)))


# ---- lives that die within a bundle ---------------------------------------------------------


def test_a_crash_within_a_bundle_blames_the_ticket_that_the_life_named() -> None:
    s = bundled(Plan(seats=2, window=2), batches=8)
    s.tell(loaded(0, 1))
    s.dies(
        0,
        start(0, life=2),
        send(0, ticket(9, 2), ticket(10, 4, attempt=2), ticket(11, 6), life=2),
        on=5,
    )
    (fault,) = s.sup.snapshot().faults
    assert (fault.kind, fault.ticket) == (FaultKind.CRASH, ticket(5, 4))
    s.ready(0, life=2)
    s.tell(loaded(0, 3, 5, 7), drop(3), drop(5), drop(7))  # late: they are loaded again
    s.tell(loaded(0, 9, life=2))
    s.dies(0, start(0, life=3), send(0, ticket(12, 6), life=3), life=2, on=10)
    s.ready(0, life=3).tell(loaded(0, 12, life=3))
    s.tell(loaded(1, 2, 4, 6, 8))
    for number in (1, 2, 9, 4):
        s.tell(ASK, deliver(number))
    crash = Fault(FaultKind.CRASH, seat=0, life=2, ticket=ticket(10, 4, attempt=2), ending=KILLED)
    s.tell(ASK, RaiseFault(crash))
    for number in (6, 12, 8):
        s.tell(ASK, deliver(number))
    s.tell(ASK, stop(0, life=3), stop(1), FINISH)
    assert s.sup.progress.delivered == 8


@pytest.mark.parametrize("word", [None, 2, 99, -1])
def test_a_crash_without_a_word_or_with_a_wrong_one_blames_the_oldest(word: int | None) -> None:
    s = bundled(Plan(seats=2, window=2), batches=8)  # ticket 2 is with seat 1
    again = [ticket(9, 0, attempt=2), ticket(10, 2), ticket(11, 4), ticket(12, 6)]
    s.dies(0, start(0, life=2), send(0, *again, life=2), on=word)


def test_a_ticket_that_was_brought_is_not_blamed() -> None:
    s = bundled(Plan(seats=1, window=2), batches=4)
    s.tell(loaded(0, 1, 2))
    again = [ticket(5, 2, attempt=2), ticket(6, 3)]
    s.dies(0, start(0, life=2), send(0, *again, life=2), on=2)


def test_a_ticket_is_not_blamed_by_a_life_that_has_not_begun_its_epoch() -> None:
    s = bundled(Plan(seats=1, window=1, tenure=Tenure.LOADER), batches=4)
    s.refill(2)
    s.tell(epoch_asked(1), begin_epoch(0, 1), send(0, ticket(5, 0, epoch=1), ticket(6, 1, epoch=1)))
    again = [ticket(7, 0, epoch=1), ticket(8, 1, epoch=1)]
    s.dies(0, start(0, life=2, epoch=1), send(0, *again, life=2), on=2)


def test_a_bundle_is_shared_by_those_who_owe_least() -> None:
    plan = Plan(seats=3, window=3, limits=Limits(failed_starts=1))
    s = Script(plan, batches=12).taught(4).begin().ready(1, 2)
    s.tell(loaded(1, 2, 5))
    s.dies(  # seat 0 never came up: nobody is to blame, and the others do its work
        0,
        send(1, ticket(13, 0), ticket(15, 6)),
        send(2, ticket(14, 3), ticket(16, 9)),
    )


def test_after_a_crash_nothing_travels_in_company_until_the_next_epoch() -> None:
    s = bundled(Plan(seats=1, window=2, tenure=Tenure.LOADER), batches=None)
    s.tell(drawn(0, 1), send(0, *tickets(1, 2)), draw(6))
    s.dies(0, start(0, life=2), send(0, ticket(3, 0, attempt=2), ticket(4, 1), life=2))
    s.ready(0, life=2)
    s.tell(drawn(2, 3), send(0, ticket(5, 2), ticket(6, 3), life=2))  # asked for before the crash
    s.tell(loaded(0, 3, 4, 5, life=2, work_s=3 * TINY_S))
    s.tell(ASK, deliver(3))
    s.tell(ASK, deliver(4))
    s.tell(ASK, deliver(5), DRAW)
    for place in range(4, 30):
        number = place + 3
        s.tell(drawn(place), send(0, ticket(number, place), life=2))
        s.tell(loaded(0, number - 1, life=2, work_s=TINY_S))
        s.tell(ASK, deliver(number - 1), DRAW)
    s.tell(epoch_asked(1), begin_epoch(0, 1, life=2), DRAW)
    s.refill(MANY)
    s.perform(drawn(0))
    s.tell(EpochBegun(0, 2, 1))
    for number in (33, 34, 35):
        s.tell(ASK)
        commands = s.perform(loaded(0, number, life=2, work_s=TINY_S))
    assert [len(c.errands) for c in commands[1:]] == [3], "it may learn again"


def test_a_life_that_hangs_in_a_bundle_is_blamed_for_its_oldest_ticket() -> None:
    s = bundled(Plan(seats=1, window=2, limits=Limits(silent_s=5.0)), batches=4)
    s.at(4.0).tell(loaded(0, 1, 2))
    s.silent(0)
    again = [ticket(5, 2, attempt=2), ticket(6, 3)]
    s.at(9.0).tell(RING, kill(0), start(0, life=2), send(0, *again, life=2))


# ---- epochs ---------------------------------------------------------------------------------


def test_an_early_break_drops_what_is_loaded_and_forgets_the_bundles_that_are_out() -> None:
    s = bundled(Plan(seats=2, window=2, tenure=Tenure.LOADER))
    s.tell(loaded(0, 1, 3))
    s.tell(loaded(1, 4))
    s.tell(ASK, deliver(1))
    s.refill(3)
    s.tell(
        epoch_asked(1),
        drop(3),
        drop(4),
        begin_epoch(0, 1),
        begin_epoch(1, 1),
        send(0, ticket(9, 0, epoch=1), ticket(11, 2, epoch=1)),
        send(1, ticket(10, 1, epoch=1)),
    )
    s.tell(ASK)
    s.tell(loaded(0, 5, 7), drop(5), drop(7))
    s.tell(loaded(1, 2, 6, 8), drop(2), drop(6), drop(8))
    s.tell(EpochBegun(0, 1, 1))
    s.tell(EpochBegun(1, 1, 1))
    s.tell(loaded(0, 9, 11), deliver(9))
    s.tell(ASK)
    s.tell(loaded(1, 10), deliver(10, 11))
    s.tell(ASK, FINISH)


def test_the_pace_of_one_epoch_is_where_the_next_one_begins() -> None:
    s = bundled(Plan(seats=1, window=2, tenure=Tenure.LOADER), batches=4)
    s.tell(loaded(0, 1, 2, 3, 4, work_s=4 * TINY_S))
    s.tell(ASK, deliver(1, 2, 3, 4))
    s.tell(ASK, FINISH)
    bundle = s.sup._bundles.tickets
    assert bundle > 4
    s.refill(None)
    s.tell(epoch_asked(1), begin_epoch(0, 1), draw(2 * bundle))


def test_a_close_drops_what_a_bundle_has_brought() -> None:
    s = bundled(Plan(seats=1, window=2))
    s.tell(loaded(0, 1, 2, 3))
    s.tell(CLOSE, drop(1), drop(2), drop(3), stop(0))
    s.tell(loaded(0, 4, 5), drop(4), drop(5))
    s.dies(0, on=6)
    assert s.sup.at_rest


def test_no_more_is_drawn_than_the_longest_bundles_fill() -> None:
    s = Script(Plan(seats=1, window=2)).taught(64)
    commands = s.perform(epoch_asked())
    assert commands[-1] == DrawTickets(128)
    s.perform(drawn(*range(128)))
    s.ready(0)
    s.tell(loaded(0, *range(1, 65), work_s=64 * TINY_S))
    s.tell(ASK, deliver(*range(1, 65)), draw(64))
