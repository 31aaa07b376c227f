"""These events, exactly these commands."""

from __future__ import annotations

from dataclasses import replace

import pytest

from antifreeze._core.commands import (
    Command,
    Deliver,
    RaiseFault,
    SendTickets,
    StartLife,
    StopLife,
)
from antifreeze._core.events import (
    EpochBegun,
    LifeEnded,
    LifeReady,
    LifeSilent,
    LoopLeft,
    SamplerEnded,
    SamplerFailed,
)
from antifreeze._core.faults import Ending, Fault, FaultKind
from antifreeze._core.limits import Limits
from antifreeze._core.loader_plan import Plan, Source, Tenure
from antifreeze._core.reorder import Order
from antifreeze._core.slab_leases import LeaseState
from antifreeze._core.states import Run
from antifreeze._core.supervisor import Supervisor
from antifreeze._core.tickets import Progress, Ticket
from antifreeze._core.worker_slots import LifeState, SeatState

from .script import (
    ASK,
    CLOSE,
    DRAW,
    FINISH,
    KILLED,
    LEFT,
    RING,
    SEED,
    Script,
    abandon,
    begin_epoch,
    deliver,
    drawn,
    drop,
    ended,
    epoch_asked,
    failed,
    kill,
    late,
    loaded,
    send,
    start,
    stop,
    terminate,
    ticket,
    with_whole_log,
)
from .world import FOR_EVER, World

MANY = 1000  # batches: more than any script here draws
# A window of one, taken literally: after a few breaks in a row a life has no room left.
SCARCE = Plan(seats=1, window=1, longest_bundle=1, tenure=Tenure.LOADER)


def raised(kind: FaultKind, *held: Ticket, **facts: object) -> RaiseFault:
    return RaiseFault(Fault(kind, **facts), held)


def leases(sup: Supervisor, state: LeaseState, seat: int = 0) -> int:
    """Count leases of the present life of a seat."""
    life = sup._seats.all[seat].life
    assert life is not None
    return life.leases.count(state)


# ---- a healthy epoch ------------------------------------------------------------------------


def test_a_healthy_epoch_command_by_command() -> None:
    s = Script(Plan(seats=2, window=4))
    s.tell(epoch_asked(), start(0), start(1), DRAW)
    s.tell(drawn(0), send(0, ticket(1, 0), slot=0), DRAW)
    s.tell(drawn(1), send(1, ticket(2, 1), slot=0), DRAW)
    s.tell(drawn(2), send(0, ticket(3, 2), slot=1), DRAW)
    s.tell(drawn(3), send(1, ticket(4, 3), slot=1))  # the window is full
    s.tell(LifeReady(0, 1))
    s.tell(LifeReady(1, 1))
    s.tell(ASK)
    s.loaded(1, 2)  # too early: position 0 is due
    s.loaded(0, 1, deliver(1), DRAW)
    s.tell(drawn(4), send(0, ticket(5, 4), slot=0, generation=2))
    s.tell(ASK, deliver(2), DRAW)
    s.tell(SamplerEnded())
    s.loaded(0, 3)  # the loop is away
    s.loaded(1, 4)
    s.loaded(0, 5)
    s.tell(ASK, deliver(3))
    s.tell(ASK, deliver(4))
    s.tell(ASK, deliver(5))
    s.tell(ASK, stop(0), stop(1), FINISH)
    assert s.sup.progress == Progress(epoch=0, delivered=5, seed_base=SEED)
    s.dies(0, ending=LEFT)
    s.dies(1, ending=LEFT)
    assert s.sup.at_rest
    assert s.sup.next_wakeup() is None
    s.tell(ASK, FINISH)  # as often as it asks


def test_an_empty_epoch_is_over_at_once() -> None:
    s = Script(Plan(seats=1, window=2), batches=0)
    s.tell(epoch_asked(), start(0))
    s.tell(ASK, stop(0), FINISH)


def test_healthy_workers_are_dealt_to_in_turn() -> None:
    s = Script(Plan(seats=3, window=6), batches=9)
    s.tell(
        epoch_asked(),
        *(start(seat) for seat in range(3)),
        *(send(position % 3, ticket(position + 1, position)) for position in range(6)),
    )
    s.ready(0, 1, 2)
    for position in range(3):
        s.tell(ASK)
        s.loaded(
            position,
            position + 1,
            deliver(position + 1),
            send(position, ticket(position + 7, position + 6)),
        )


def test_in_strict_order_whoever_is_quick_waits_for_its_turn() -> None:
    s = Script(Plan(seats=2, window=4), batches=4).begin().ready(0, 1)
    s.loaded(1, 2)
    s.loaded(1, 4)
    s.tell(ASK)
    s.loaded(0, 1, deliver(1))
    s.tell(ASK, deliver(2))
    s.tell(ASK)
    s.loaded(0, 3, deliver(3))
    s.tell(ASK, deliver(4))
    s.tell(ASK, stop(0), stop(1), FINISH)


def test_with_overtake_whoever_is_ready_first_comes_first_and_gets_more() -> None:
    s = Script(Plan(seats=2, window=4, order=Order.OVERTAKE), batches=7).begin().ready(0, 1)
    s.tell(ASK)
    s.loaded(1, 2, deliver(2), send(1, ticket(5, 4)))
    s.tell(ASK)
    s.loaded(1, 4, deliver(4), send(1, ticket(6, 5)))
    s.loaded(1, 6)  # the loop is away: in order of arrival
    s.loaded(1, 5)
    s.loaded(0, 3)
    s.loaded(0, 1)
    s.tell(ASK, deliver(6), send(1, ticket(7, 6)))
    s.tell(ASK, deliver(5))
    s.tell(ASK, deliver(3))
    s.tell(ASK, deliver(1))
    s.tell(ASK)
    s.loaded(1, 7, deliver(7))
    s.tell(ASK, stop(0), stop(1), FINISH)


# ---- the sampler, and exceptions ------------------------------------------------------------


def test_a_sampler_error_comes_after_earlier_batches_and_drawing_goes_on() -> None:
    s = Script(Plan(seats=1, window=4))
    s.tell(epoch_asked(), start(0), DRAW)
    s.tell(drawn(0), send(0, ticket(1, 0)), DRAW)
    s.tell(SamplerFailed(), DRAW)
    s.tell(drawn(2), send(0, ticket(3, 2)), DRAW)
    s.tell(SamplerEnded())
    s.ready(0)
    s.tell(ASK)
    s.loaded(0, 1, deliver(1))
    s.tell(ASK, raised(FaultKind.SAMPLER, delivered=0))
    s.tell(ASK)
    s.loaded(0, 3, deliver(3))
    s.tell(ASK, stop(0), FINISH)
    assert s.sup.progress.delivered == 3


def test_a_sampler_that_fails_at_once_is_raised_at_once() -> None:
    s = Script(Plan(seats=1, window=1, longest_bundle=1))
    s.tell(epoch_asked(), start(0), DRAW)
    s.tell(ASK)
    s.tell(SamplerFailed(), raised(FaultKind.SAMPLER), DRAW)
    s.tell(ASK)
    s.tell(SamplerEnded(), stop(0), FINISH)


def test_answers_of_a_sampler_that_nobody_asked_count_for_nothing() -> None:
    s = Script(Plan(seats=1, window=1))
    s.tell(epoch_asked(), start(0), DRAW)
    s.tell(drawn(0), send(0, ticket(1, 0)))
    s.tell(drawn(1))
    s.tell(SamplerFailed())
    s.tell(SamplerEnded())
    s.tell(ASK)
    s.loaded(0, 1, deliver(1), DRAW)


def test_an_exception_of_the_dataset_is_delivered_in_turn_and_not_retried() -> None:
    s = Script(Plan(seats=2, window=2), batches=2).begin().ready(0, 1)
    s.tell(failed(1, 2))
    s.tell(ASK)
    s.loaded(0, 1, deliver(1))
    s.tell(ASK, deliver(2))
    s.tell(ASK, stop(0), stop(1), FINISH)
    (fault,) = s.sup.snapshot().faults
    assert (fault.kind, fault.seat, fault.life) == (FaultKind.EXCEPTION, 1, 1)
    assert fault.ticket == ticket(2, 1)


@pytest.mark.parametrize("limit", [0, None])
def test_a_delivery_names_ticket_and_worker_without_the_event_log(limit: int | None) -> None:
    """However many batches are under way: nothing is looked up in the log of events."""
    seats = 100
    sup = Supervisor(with_whole_log(Plan(seats=seats, window=seats), limit))
    sup.handle(epoch_asked(), 0.0)
    for seat in range(seats):
        sup.handle(LifeReady(seat, 1), 0.0)
        sup.handle(EpochBegun(seat, 1, 0), 0.0)
    for place in range(seats):
        sup.handle(drawn(place), 0.0)
    for seat in reversed(range(seats)):
        sup.handle(failed(seat, seat + 1), 0.0)
    for seat in range(seats):
        (command,) = [c for c in sup.handle(ASK, 0.0) if isinstance(c, Deliver)]
        (errand,) = command.errands
        assert (errand.seat, errand.life, errand.ticket) == (seat, 1, ticket(seat + 1, seat))


def test_a_timeout_names_what_its_worker_still_holds_of_an_earlier_epoch() -> None:
    plan = Plan(seats=1, window=2, timeout_s=3.0, tenure=Tenure.LOADER)
    s = Script(plan, batches=2).begin().ready(0)
    s.refill(2)
    s.begin(epoch=1)
    s.tell(ASK)
    due = ticket(3, 0, epoch=1)
    held = (due, ticket(4, 1, epoch=1), ticket(1, 0), ticket(2, 1))
    late = raised(FaultKind.TIMEOUT, *held, seat=0, life=1, ticket=due, seconds=3.0)
    s.at(3.0).tell(RING, late)


def test_the_fault_of_an_exception_says_how_many_batches_came_before() -> None:
    s = Script(Plan(seats=1, window=2), batches=2).begin().ready(0)
    s.loaded(0, 1)
    s.tell(ASK, deliver(1))
    s.tell(failed(0, 2))
    assert s.sup.snapshot().faults[-1].delivered == 1


# ---- lives that die -------------------------------------------------------------------------


def test_the_tickets_of_a_dead_life_are_dealt_again_in_order_and_the_oldest_is_suspect() -> None:
    s = Script(Plan(seats=2, window=6), batches=6).begin().ready(0, 1)
    s.dies(
        0,
        start(0, life=2),
        send(0, ticket(7, 0, attempt=2), ticket(8, 2), ticket(9, 4), life=2),
    )
    s.loaded(0, 3, drop(3))  # late: life 1 is gone
    s.loaded(0, 3, drop(3), life=2)  # a number of life 1, whoever says it
    s.ready(0, life=2)
    s.tell(ASK)
    s.loaded(0, 7, deliver(7), life=2)
    for number in (2, 4, 6):
        s.loaded(1, number)
    for number in (8, 9):
        s.loaded(0, number, life=2)
    for number in (2, 8, 4, 9, 6):
        s.tell(ASK, deliver(number))
    s.tell(ASK, stop(0, life=2), stop(1), FINISH)
    assert s.sup.snapshot().restarts == 1


def test_the_others_take_the_work_of_a_dead_life_if_there_is_more_than_it_had() -> None:
    s = Script(Plan(seats=3, window=3), batches=3).begin().ready(0, 1, 2)
    s.loaded(1, 2)
    s.loaded(2, 3)
    s.tell(ASK)
    s.dies(0, start(0, life=2), send(0, ticket(4, 0, attempt=2), life=2))
    s.ready(0, life=2)
    s.loaded(0, 4, deliver(4), life=2)
    s.tell(ASK, deliver(2))
    s.tell(ASK, deliver(3))
    s.tell(ASK, stop(0, life=2), stop(1), stop(2), FINISH)


def test_a_ticket_that_ends_two_lives_is_raised_at_its_turn_and_the_rest_goes_on() -> None:
    s = Script(Plan(seats=1, window=2), batches=4).begin().ready(0)
    s.loaded(0, 1)
    s.tell(ASK, deliver(1), send(0, ticket(3, 2)))
    s.dies(
        0,
        start(0, life=2),
        send(0, ticket(4, 1, attempt=2), ticket(5, 2), life=2),
    )
    s.ready(0, life=2)
    s.dies(0, start(0, life=3), send(0, ticket(6, 2), life=3), life=2)
    crash = raised(
        FaultKind.CRASH,
        seat=0,
        life=2,
        ticket=ticket(4, 1, attempt=2),
        ending=KILLED,
        delivered=1,
    )
    s.tell(ASK, crash, send(0, ticket(7, 3), life=3))
    s.ready(0, life=3)
    s.tell(ASK)
    s.loaded(0, 6, deliver(6), life=3)
    s.tell(ASK)
    s.loaded(0, 7, deliver(7), life=3)
    s.tell(ASK, stop(0, life=3), FINISH)
    assert s.sup.progress.delivered == 4


def test_a_batch_loaded_before_is_delivered_before_the_crash_of_a_later_one() -> None:
    plan = Plan(seats=2, window=2, limits=Limits(attempts=1))
    s = Script(plan, batches=2).begin().ready(0, 1)
    s.dies(1, start(1, life=2))
    s.loaded(0, 1)
    s.tell(ASK, deliver(1))
    crash = raised(FaultKind.CRASH, seat=1, life=1, ticket=ticket(2, 1), ending=KILLED)
    s.tell(ASK, crash)
    s.tell(ASK, stop(0), stop(1, life=2), FINISH)


def test_with_overtake_a_crash_is_raised_when_it_happens() -> None:
    plan = Plan(seats=2, window=2, order=Order.OVERTAKE, limits=Limits(attempts=1))
    s = Script(plan, batches=2).begin().ready(0, 1)
    s.tell(ASK)
    crash = raised(FaultKind.CRASH, seat=1, life=1, ticket=ticket(2, 1), ending=KILLED)
    s.dies(1, start(1, life=2), crash)


def test_an_idle_life_that_dies_is_replaced_and_no_ticket_is_blamed() -> None:
    s = Script(Plan(seats=2, window=1), batches=MANY).begin().ready(0, 1)
    s.dies(1, start(1, life=2))
    (fault,) = s.sup.snapshot().faults  # said, although nothing was lost
    assert (fault.kind, fault.ticket) == (FaultKind.CRASH, None)
    s.tell(ASK)
    s.loaded(0, 1, deliver(1), send(1, ticket(2, 1), life=2))


def test_an_idle_life_that_dies_when_all_is_drawn_is_not_replaced() -> None:
    s = Script(Plan(seats=2, window=4), batches=1).begin().ready(0, 1)
    s.dies(1)
    s.dies(0, start(0, life=2), send(0, ticket(2, 0, attempt=2), life=2))  # one is enough


def test_what_strangers_say_counts_for_nothing() -> None:
    s = Script(Plan(seats=2, window=2), batches=2).begin().ready(0, 1)
    s.loaded(0, 2, drop(2))  # seat 1 was asked for that
    s.loaded(1, 2, drop(2), life=2)  # nobody was born there yet
    s.loaded(0, 99, drop(99))
    s.tell(LifeReady(0, 7))
    s.tell(LifeReady(0, 1))  # again
    s.dies(0, life=7)
    s.tell(EpochBegun(0, 7, 0))
    s.tell(EpochBegun(0, 1, 5))
    s.tell(ASK)
    s.loaded(0, 1, deliver(1))
    s.loaded(0, 1, drop(1))  # the loop has it
    s.tell(ASK)
    s.loaded(1, 2, deliver(2))


def test_a_parcel_that_comes_twice_does_not_take_the_first_away() -> None:
    s = Script(Plan(seats=2, window=2), batches=2).begin().ready(0, 1)
    s.loaded(1, 2)
    s.loaded(1, 2)  # not dropped: that number waits for the loop
    s.loaded(0, 2)  # nor when a stranger says it
    s.loaded(0, 1)
    s.tell(ASK, deliver(1))
    s.tell(ASK, deliver(2))


# ---- lives that never come up, or bring nothing ---------------------------------------------


def test_a_life_that_never_comes_up_ends_the_run_after_what_is_loaded() -> None:
    limits = Limits(failed_starts=3, rest_s=0.5)
    s = Script(Plan(seats=1, window=2, limits=limits), batches=4).begin().ready(0)
    s.loaded(0, 1)
    s.dies(0, start(0, life=2), send(0, ticket(3, 1, attempt=2), life=2))
    no_memory = Ending(words="no memory")
    s.dies(
        0,
        start(0, life=3),
        send(0, ticket(4, 1, attempt=2), life=3),  # it never came up: innocent
        life=2,
        ending=no_memory,
    )
    s.dies(0, life=3, ending=no_memory)
    assert s.sup.next_wakeup() == 0.5
    s.at(0.5).tell(RING, start(0, life=4), send(0, ticket(5, 1, attempt=2), life=4))
    s.dies(0, life=4, ending=no_memory)
    s.tell(ASK, deliver(1))
    never = raised(FaultKind.NEVER_STARTED, seat=0, life=4, ending=no_memory)
    s.tell(ASK, never)
    s.tell(ASK, never)
    s.tell(epoch_asked(1))
    s.tell(ASK, never)
    s.tell(CLOSE)
    assert s.sup.at_rest
    assert s.sup.next_wakeup() is None


def test_a_seat_that_is_lost_leaves_its_work_to_the_others() -> None:
    s = Script(Plan(seats=2, window=2, limits=Limits(failed_starts=1)), batches=3).begin()
    s.dies(0, send(1, ticket(3, 0)))
    assert s.sup.snapshot().seats[0].state is SeatState.LOST
    s.ready(1)
    s.tell(ASK)
    s.loaded(1, 2)
    s.loaded(1, 3, deliver(3), send(1, ticket(4, 2)))
    s.tell(ASK, deliver(2))
    s.tell(ASK)
    s.loaded(1, 4, deliver(4))
    s.tell(ASK, stop(1), FINISH)


def test_a_seat_the_machine_has_no_process_for_is_done_without_until_the_next_epoch() -> None:
    refused = Ending(words="no process", refused=True)
    s = Script(Plan(seats=2, window=2), batches=2).begin().ready(0)
    s.dies(1, send(0, ticket(3, 1)), ending=refused)  # at once, and without a rest
    (fault,) = s.sup.faults.latest
    assert (fault.kind, fault.seat, fault.ticket) == (FaultKind.REFUSED, 1, None)
    assert s.sup.snapshot().seats[1].state is SeatState.LOST
    s.loaded(0, 1)
    s.loaded(0, 3)
    s.tell(ASK, deliver(1))
    s.tell(ASK, deliver(3))
    s.tell(ASK, stop(0), FINISH)
    s.dies(0, ending=Ending(exit_code=0))
    s.refill(2)
    assert start(1, life=2, epoch=1) in s.perform(epoch_asked(1))


def test_the_last_seat_is_tried_again_before_the_run_ends_for_want_of_a_process() -> None:
    refused = Ending(words="no process", refused=True)
    limits = Limits(failed_starts=3, rest_s=0.5)
    s = Script(Plan(seats=2, window=2, limits=limits), batches=MANY).begin()
    s.tell(ASK)
    s.dies(0, send(1, ticket(3, 0)), ending=refused)
    assert start(1, 2) in s.perform(LifeEnded(1, 1, refused))
    s.perform(LifeEnded(1, 2, refused))
    (again, *_) = s.at(0.5).perform(RING)
    assert again == start(1, 3)
    (answer,) = s.perform(LifeEnded(1, 3, refused))
    assert isinstance(answer, RaiseFault)
    assert answer.fault.kind is FaultKind.NEVER_STARTED
    assert answer.fault.ending == refused


def test_the_run_ends_when_the_last_seat_is_lost() -> None:
    s = Script(Plan(seats=2, window=2, limits=Limits(failed_starts=1)), batches=MANY).begin()
    s.tell(ASK)
    s.dies(0, send(1, ticket(3, 0)))
    s.dies(1, raised(FaultKind.NEVER_STARTED, seat=1, life=1, ending=KILLED))


def test_the_run_ends_also_if_a_seat_was_left_empty_when_all_was_drawn() -> None:
    s = Script(Plan(seats=2, window=2, limits=Limits(failed_starts=1)), batches=1).begin()
    s.dies(1)  # it had nothing to do, so it is not replaced
    s.tell(ASK)
    # The one batch is left, and neither seat may try again.
    (answer,) = s.perform(LifeEnded(0, 1, KILLED))
    assert isinstance(answer, RaiseFault)
    assert answer.fault.kind is FaultKind.NEVER_STARTED


def test_lives_that_bring_nothing_rest_longer_and_longer_until_the_budget_is_spent() -> None:
    limits = Limits(attempts=100, tries=100, barren_lives=7, rest_s=0.25, rest_max_s=1.0)
    s = Script(Plan(seats=1, window=1, limits=limits), batches=MANY).begin().ready(0)
    number = 1
    s.at(10.0).dies(0, start(0, life=2), send(0, ticket(2, 0, attempt=2), life=2))
    now = 10.0
    for life, rest_s in ((2, 0.25), (3, 0.5), (4, 1.0), (5, 1.0), (6, 1.0)):
        s.ready(0, life=life)
        s.at(now).dies(0, life=life)
        assert s.sup.next_wakeup() == now + rest_s
        assert s.sup.snapshot().seats[0].state is SeatState.RESTING
        s.at(now + rest_s / 2).tell(RING)  # too early
        now += rest_s
        number = life + 1
        again = ticket(number, 0, attempt=number)
        s.at(now).tell(RING, start(0, life=life + 1), send(0, again, life=life + 1))
    s.ready(0, life=7)
    s.tell(ASK)
    s.dies(0, raised(FaultKind.BUDGET_SPENT, seat=0, life=7, ending=KILLED), life=7)


def test_a_life_that_brings_a_batch_ends_the_row_of_barren_ones() -> None:
    limits = Limits(attempts=100, tries=100)
    s = Script(Plan(seats=1, window=1, limits=limits), batches=MANY).begin()
    s.ready(0).dies(0, start(0, life=2), send(0, ticket(2, 0, attempt=2), life=2))
    s.ready(0, life=2).loaded(0, 2, life=2)
    s.tell(ASK, deliver(2), send(0, ticket(3, 1), life=2))
    s.dies(0, start(0, life=3), send(0, ticket(4, 1, attempt=2), life=3), life=2)  # no rest


def test_a_seat_at_rest_gets_no_life_after_the_epoch_is_over() -> None:
    limits = Limits(failed_starts=5)
    s = Script(Plan(seats=2, window=2, limits=limits), batches=2).begin()
    s.ready(1)
    s.dies(0, start(0, life=2), send(0, ticket(3, 0), life=2))
    s.dies(0, send(1, ticket(4, 0)), life=2)  # seat 0 rests; seat 1 does its work
    s.loaded(1, 2)
    s.loaded(1, 4)
    s.tell(ASK, deliver(4))
    s.tell(ASK, deliver(2))
    s.tell(ASK, stop(1), FINISH)
    s.dies(1, ending=LEFT)
    while (wakeup := s.sup.next_wakeup()) is not None:
        s.at(wakeup).tell(RING)
    assert s.sup.at_rest


# ---- deadlines ------------------------------------------------------------------------------


def test_a_life_that_does_not_come_up_in_time_is_replaced_before_it_is_gone() -> None:
    plan = Plan(seats=1, window=2, limits=Limits(start_s=10.0, kill_s=4.0))
    s = Script(plan, batches=2).begin()
    assert s.sup.next_wakeup() == 10.0
    s.at(9.0).tell(RING)
    s.at(10.0).tell(RING, kill(0), start(0, life=2), send(0, ticket(3, 0), ticket(4, 1), life=2))
    assert s.sup.next_wakeup() == 14.0  # when life 1 must be gone
    s.ready(0)  # life 1, too late
    s.loaded(0, 1, drop(1))
    s.ready(0, life=2)
    s.dies(0)
    assert s.sup.next_wakeup() is None
    s.tell(ASK)
    s.loaded(0, 3, deliver(3), life=2)


def test_a_life_that_hangs_is_replaced_and_its_successor_has_memory_of_its_own() -> None:
    limits = Limits(attempts=3, silent_s=5.0, rest_s=0.5, kill_s=100.0)
    s = Script(Plan(seats=1, window=1, limits=limits), batches=1).begin().ready(0)
    s.silent(0).at(5.0).tell(
        RING, kill(0), start(0, life=2), send(0, ticket(2, 0, attempt=2), life=2, slot=0)
    )
    s.ready(0, life=2).silent(0, life=2)
    s.at(10.0).tell(RING, kill(0, life=2))
    # Lives 1 and 2 may still write into a slot 0, each of its own.
    s.at(10.5).tell(RING, start(0, life=3), send(0, ticket(3, 0, attempt=3), life=3, slot=0))
    s.ready(0, life=3)
    s.dies(0)
    s.loaded(0, 2, drop(2), life=2)  # late, but not too late to be heard
    s.tell(ASK)
    s.loaded(0, 3, deliver(3), life=3)
    s.dies(0, life=2)
    s.tell(ASK, stop(0, life=3), FINISH)


def test_a_ticket_that_hangs_as_often_as_it_may_is_raised_with_what_is_known() -> None:
    s = Script(Plan(seats=1, window=2, limits=Limits(attempts=1, silent_s=5.0)), batches=1)
    s.at(2.0).begin().ready(0).silent(0)
    s.tell(ASK)
    commands = s.at(7.5).perform(RING)
    assert commands[0] == kill(0)
    (answer,) = commands[1:]
    assert isinstance(answer, RaiseFault)
    fault = answer.fault
    assert (fault.kind, fault.seat, fault.life) == (FaultKind.HANG, 0, 1)
    assert fault.ticket == ticket(1, 0)
    assert fault.seconds == 5.5, "a hang should say how long the work had lasted"


def test_the_users_timeout_names_what_was_awaited_and_the_batch_still_comes() -> None:
    s = Script(Plan(seats=2, window=2, timeout_s=3.0), batches=2).begin().ready(0, 1)
    s.loaded(1, 2)
    s.at(1.0).tell(ASK)
    assert s.sup.next_wakeup() == 4.0
    s.at(3.5).tell(RING)
    due = ticket(1, 0)
    late = raised(FaultKind.TIMEOUT, due, seat=0, life=1, ticket=due, seconds=3.0)
    s.at(4.0).tell(RING, late)
    assert s.sup.next_wakeup() is None
    s.at(100.0).tell(ASK)
    assert s.sup.next_wakeup() == 103.0
    s.loaded(0, 1, deliver(1))
    assert s.sup.next_wakeup() is None
    s.tell(ASK, deliver(2))
    s.tell(ASK, stop(0), stop(1), FINISH)
    assert s.sup.progress.delivered == 2


def test_a_timeout_while_the_loop_is_away_is_none() -> None:
    s = Script(Plan(seats=1, window=1, timeout_s=3.0), batches=1).begin().ready(0)
    s.at(1.0).tell(ASK)
    s.loaded(0, 1, deliver(1))
    s.at(500.0).tell(RING)
    s.tell(ASK, stop(0), FINISH)


def test_a_timeout_that_waits_for_nobody_names_nobody() -> None:
    limits = Limits(rest_s=30.0, rest_max_s=30.0)
    s = Script(Plan(seats=1, window=1, timeout_s=3.0, limits=limits), batches=1).begin()
    s.dies(0, start(0, life=2), send(0, ticket(2, 0), life=2))
    s.dies(0, life=2)  # rests
    s.tell(ASK)
    s.at(3.0).tell(RING, raised(FaultKind.TIMEOUT, seconds=3.0))
    s.tell(ASK)
    s.at(30.0).tell(
        RING,
        raised(FaultKind.TIMEOUT, seconds=27.0),
        start(0, life=3),
        send(0, ticket(3, 0), life=3),
    )


# ---- streams --------------------------------------------------------------------------------


def streams(seats: int, window: int, tenure: Tenure = Tenure.EPOCH) -> Plan:
    return Plan(seats=seats, window=window, source=Source.STREAMS, tenure=tenure)


def _unequal_streams(tenure: Tenure) -> Script:
    """Two streams; the first ends after one batch, the second is asked for the rest."""
    s = Script(streams(2, 4, tenure), batches=MANY)
    s.tell(
        epoch_asked(),
        start(0),
        start(1),
        send(0, ticket(1, 0)),
        send(1, ticket(2, 1)),
        send(0, ticket(3, 2)),
        send(1, ticket(4, 3)),
    )
    s.ready(0, 1)
    s.tell(ASK)
    s.loaded(0, 1, deliver(1), send(0, ticket(5, 4)))
    s.tell(ASK)
    s.loaded(1, 2, deliver(2), send(1, ticket(6, 5)))
    s.tell(ASK)
    if tenure is Tenure.EPOCH:  # drawn one by one
        s.ended(0, 3, stop(0), send(1, ticket(7, 6)), send(1, ticket(8, 7)))
        s.loaded(1, 4, deliver(4), send(1, ticket(9, 8)))
    else:  # what was asked of a stream beyond its end is asked of nobody else, as in torch
        s.ended(0, 3, send(1, ticket(7, 6)))
        s.loaded(1, 4, deliver(4), send(1, ticket(8, 7)))
    s.tell(ended(0, 5), drop(5))  # it was asked before it ended
    return s


def test_the_epoch_goes_on_with_the_longer_stream_and_a_spent_seat_is_let_go() -> None:
    s = _unequal_streams(Tenure.EPOCH)
    s.dies(0, ending=LEFT)
    assert s.sup.snapshot().seats[0].state is SeatState.SPENT
    s.tell(ASK)
    s.ended(1, 6, stop(1), FINISH)
    s.dies(1, ending=LEFT)
    assert s.sup.at_rest
    assert s.sup.progress.delivered == 3
    assert s.sup.snapshot().faults == ()


def test_a_spent_seat_keeps_its_life_for_the_next_epoch_if_lives_stay() -> None:
    s = _unequal_streams(Tenure.LOADER)
    s.tell(ASK)
    s.ended(1, 6, FINISH)
    assert [seat.life_state for seat in s.sup.snapshot().seats] == [LifeState.SERVING] * 2
    s.refill(MANY)
    assert s.perform(epoch_asked(1))[:4] == [
        begin_epoch(0, 1),
        begin_epoch(1, 1),
        send(0, ticket(9, 0, epoch=1)),
        send(1, ticket(10, 1, epoch=1)),
    ]


def test_the_end_of_a_stream_counts_in_its_turn_where_lives_stay() -> None:
    """Torch learns of it no sooner, and asks for more of that stream until then: the next epoch may
    begin where this one is left."""
    s = Script(streams(2, 4, Tenure.LOADER), batches=MANY).begin().ready(0, 1)
    s.perform(loaded(0, 1))
    s.perform(ended(0, 3))  # at position 2; the loop has nothing yet
    s.perform(loaded(1, 2))
    s.perform(loaded(1, 4))
    assert s.perform(ASK) == [deliver(1), send(0, ticket(5, 4))]  # it is asked all the same
    assert s.perform(ASK) == [deliver(2), send(1, ticket(6, 5))]
    assert s.perform(ASK) == [deliver(4), send(1, ticket(7, 6)), send(1, ticket(8, 7))]
    assert s.perform(ended(0, 5)) == [drop(5)]
    assert s.sup.snapshot().seats[0].state is SeatState.SPENT


def test_a_life_that_is_lost_after_the_end_of_its_stream_is_not_missed() -> None:
    s = Script(streams(2, 4, Tenure.LOADER), batches=MANY).begin().ready(0, 1)
    s.perform(loaded(0, 1))
    s.perform(ended(0, 3))
    s.perform(LifeEnded(0, 1, KILLED))
    s.perform(loaded(1, 2))
    assert s.sup.faults.seen == 0
    assert s.sup.snapshot().seats[0].state is SeatState.SPENT


def test_the_parcel_that_says_a_stream_ended_is_thrown_away() -> None:
    """It holds no batch, nobody will ask for it, and a driver keeps parcels until told."""
    s = Script(streams(1, 1), batches=MANY).begin().ready(0)
    commands = s.perform(ended(0, 1))
    assert commands.count(drop(1)) == 1


def test_streams_are_asked_in_turn_however_quick_they_are() -> None:
    s = Script(streams(2, 2), batches=MANY).begin().ready(0, 1)
    s.loaded(1, 2)
    s.tell(ASK)
    s.loaded(0, 1, deliver(1), send(0, ticket(3, 2)))
    s.tell(ASK, deliver(2), send(1, ticket(4, 3)))
    s.loaded(1, 4)
    s.tell(ASK)
    s.loaded(0, 3, deliver(3), send(0, ticket(5, 4)))


def test_a_stream_that_breaks_off_is_raised_once_in_turn_and_the_others_go_on() -> None:
    s = Script(streams(2, 4), batches=MANY).begin().ready(0, 1)
    s.loaded(0, 1)
    s.loaded(1, 2)
    s.dies(0)  # it held position 2
    s.tell(ASK, deliver(1), send(1, ticket(5, 4)))
    s.tell(ASK, deliver(2), send(1, ticket(6, 5)))
    lost = raised(
        FaultKind.STREAM_LOST, seat=0, life=1, ticket=ticket(3, 2), ending=KILLED, delivered=0
    )
    s.tell(ASK, lost, send(1, ticket(7, 6)))
    s.tell(ASK)
    s.loaded(1, 4, deliver(4), send(1, ticket(8, 7)))
    s.tell(ASK)
    s.ended(1, 5, stop(1), FINISH)


def test_what_a_broken_stream_was_asked_beyond_its_end_is_void() -> None:
    s = Script(streams(2, 4), batches=MANY).begin().ready(0, 1)
    s.dies(0, send(1, ticket(5, 4)))  # of positions 0 and 2, the first is raised
    lost = raised(FaultKind.STREAM_LOST, seat=0, life=1, ticket=ticket(1, 0), ending=KILLED)
    s.tell(ASK, lost, send(1, ticket(6, 5)))
    s.tell(ASK)
    s.loaded(1, 2, deliver(2), send(1, ticket(7, 6)))
    s.tell(ASK)
    s.loaded(1, 4, deliver(4), send(1, ticket(8, 7)))


def test_a_stream_that_breaks_off_while_nothing_is_asked_of_it_is_raised_too() -> None:
    s = Script(streams(2, 1), batches=MANY).begin().ready(0, 1)
    s.dies(1)
    s.tell(ASK)
    s.loaded(0, 1, deliver(1))
    lost = raised(FaultKind.STREAM_LOST, seat=1, life=1, ending=KILLED)
    s.tell(ASK, lost, send(0, ticket(3, 2, drawn=1)))
    s.tell(ASK)
    s.ended(0, 3, stop(0), FINISH)


def test_a_stream_that_hangs_is_lost() -> None:
    plan = Plan(seats=1, window=1, source=Source.STREAMS, limits=Limits(silent_s=5.0))
    s = Script(plan, batches=MANY).begin().ready(0).silent(0)
    s.tell(ASK)
    commands = s.at(5.0).perform(RING)
    assert commands[0] == kill(0)
    assert isinstance(commands[1], RaiseFault)
    assert commands[1].fault.kind is FaultKind.STREAM_LOST
    s.tell(ASK, FINISH)


def test_when_all_streams_are_lost_each_is_raised_and_the_epoch_ends() -> None:
    s = Script(streams(2, 2), batches=MANY).begin().ready(0, 1)
    s.dies(0)
    s.dies(1)
    for seat in (0, 1):
        lost = raised(
            FaultKind.STREAM_LOST, seat=seat, life=1, ticket=ticket(seat + 1, seat), ending=KILLED
        )
        s.tell(ASK, lost)
    s.tell(ASK, FINISH)


def test_a_spent_life_that_dies_is_no_loss() -> None:
    s = Script(streams(2, 2, Tenure.LOADER), batches=MANY).begin().ready(0, 1)
    s.ended(0, 1, send(1, ticket(3, 2)))
    s.dies(0)
    assert s.sup.snapshot().faults == ()
    s.tell(ASK)
    s.loaded(1, 2, deliver(2), send(1, ticket(4, 3)))


@pytest.mark.parametrize("seats", [1, 2, 4, 8])
@pytest.mark.parametrize("ahead", [1, 2])
def test_persistent_streams_come_to_their_end_however_many_they_are(seats: int, ahead: int) -> None:
    world = World(streams(seats, seats * ahead, Tenure.LOADER))
    for _ in range(3):
        world.begin_epoch(FOR_EVER)
        world.settle()
    world.close()
    world.settle_closed()


def test_streams_without_room_for_parcels_end_when_their_last_life_dies() -> None:
    plan = replace(SCARCE, source=Source.STREAMS)
    s = Script(plan, batches=MANY)
    for epoch in range(plan.leases_a_life):
        sent = send(0, ticket(epoch + 1, 0, epoch=epoch, drawn=epoch))
        assert s.perform(epoch_asked(epoch))[-1] == sent
    s.tell(epoch_asked(plan.leases_a_life), begin_epoch(0, plan.leases_a_life))
    s.tell(ASK)  # all slots are with the life: a ticket, but no room for a parcel
    answers = s.perform(LifeEnded(0, 1, KILLED))
    assert [type(answer) for answer in answers] == [RaiseFault]
    s.tell(ASK, FINISH)


def test_streams_that_hold_nothing_may_break_off_beyond_the_window() -> None:
    plan = Plan(seats=3, window=1, longest_bundle=1, source=Source.STREAMS)
    s = Script(plan, batches=MANY).begin().ready(0, 1, 2)
    s.dies(1)
    s.dies(2)  # two faults wait for the loop, the window is full, and all of it is sound
    s.tell(ASK)
    s.loaded(0, 1, deliver(1))
    first, second = (
        raised(FaultKind.STREAM_LOST, seat=seat, life=1, ending=KILLED) for seat in (1, 2)
    )
    s.tell(ASK, first)
    s.tell(ASK, second, send(0, ticket(4, 3, drawn=1)))


# ---- lives that stay ------------------------------------------------------------------------


def staying(seats: int, window: int) -> Plan:
    return Plan(seats=seats, window=window, tenure=Tenure.LOADER)


def test_lives_that_stay_are_told_of_the_next_epoch() -> None:
    s = Script(staying(2, 4), batches=2).begin().ready(0, 1)
    s.loaded(0, 1)
    s.loaded(1, 2)
    s.tell(ASK, deliver(1))
    s.tell(ASK, deliver(2))
    s.tell(ASK, FINISH)
    s.tell(ASK, FINISH)
    s.refill(3)
    s.tell(
        epoch_asked(1),
        begin_epoch(0, 1),
        begin_epoch(1, 1),
        send(0, ticket(3, 0, epoch=1)),
        send(1, ticket(4, 1, epoch=1)),
        send(0, ticket(5, 2, epoch=1)),
    )
    assert s.sup.progress == Progress(epoch=1, delivered=0, seed_base=SEED)
    s.tell(EpochBegun(0, 1, 1))
    s.tell(EpochBegun(1, 1, 1))
    s.loaded(0, 3)
    s.tell(ASK, deliver(3))


def test_a_life_that_died_between_two_epochs_is_replaced_at_the_next() -> None:
    s = Script(staying(2, 2), batches=0).begin().ready(0, 1)
    s.tell(ASK, FINISH)
    s.dies(1)
    s.refill(1)
    s.tell(
        epoch_asked(1),
        begin_epoch(0, 1),
        start(1, life=2, epoch=1),
        send(0, ticket(1, 0, epoch=1)),
    )


def test_an_early_break_drops_what_is_loaded_and_forgets_what_is_on_its_way() -> None:
    s = Script(staying(1, 3), batches=MANY).begin().ready(0)
    s.loaded(0, 1)
    s.refill(2)
    s.tell(
        epoch_asked(1),
        drop(1),
        begin_epoch(0, 1),
        send(0, ticket(4, 0, epoch=1), slot=0, generation=2),  # of the parcel that was dropped
        send(0, ticket(5, 1, epoch=1), slot=3),
    )
    s.tell(ASK)
    s.loaded(0, 2, drop(2))
    s.loaded(0, 3, drop(3))
    s.tell(EpochBegun(0, 1, 1))
    assert leases(s.sup, LeaseState.LENT) == 2
    assert leases(s.sup, LeaseState.FREE) == 2
    s.loaded(0, 4, deliver(4))
    s.tell(ASK)
    s.loaded(0, 5, deliver(5))
    s.tell(ASK, FINISH)
    assert leases(s.sup, LeaseState.FREE) == 4


def test_breaks_in_a_row_wait_for_room_until_the_life_has_caught_up() -> None:
    s = Script(SCARCE, batches=MANY)
    most = SCARCE.leases_a_life
    for epoch in range(most):
        sent = send(0, ticket(epoch + 1, 0, epoch=epoch, drawn=epoch))
        assert s.perform(epoch_asked(epoch))[-1] == sent
    s.tell(epoch_asked(most), begin_epoch(0, most))
    s.tell(ASK)  # all slots are with the life
    s.tell(LifeReady(0, 1))
    s.tell(EpochBegun(0, 1, most - 1))  # of the epoch before: it still has tickets of that one
    s.tell(EpochBegun(0, 1, most), send(0, ticket(most + 1, 0, epoch=most, drawn=most)))
    again = ticket(most + 2, 1, epoch=most, drawn=most + 1)
    s.loaded(0, most + 1, deliver(most + 1), send(0, again))


def test_one_late_parcel_is_room_enough_for_a_ticket() -> None:
    s = Script(SCARCE, batches=MANY)
    most = SCARCE.leases_a_life
    for epoch in range(most + 1):
        s.begin(epoch)
    s.loaded(
        0, 1, drop(1), send(0, ticket(most + 1, 0, epoch=most, drawn=most), slot=0, generation=2)
    )


def test_a_ticket_is_not_blamed_before_its_life_has_begun_the_epoch() -> None:
    s = Script(staying(1, 1), batches=1).begin().ready(0)
    s.refill(1)
    s.tell(epoch_asked(1), begin_epoch(0, 1), send(0, ticket(2, 0, epoch=1)))
    # The life still works on the ticket of the epoch before; it is that one which ended it.
    s.dies(0, start(0, life=2, epoch=1), send(0, ticket(3, 0, epoch=1), life=2))


def test_a_life_still_starting_when_the_epoch_ends_is_not_missed_afterwards() -> None:
    plan = Plan(
        seats=1, window=1, source=Source.STREAMS, tenure=Tenure.LOADER, limits=Limits(start_s=10.0)
    )
    s = Script(plan, batches=0).begin()
    s.tell(ASK, FINISH)
    s.at(10.0).tell(RING, kill(0))
    s.tell(ASK, FINISH)
    s.refill(1)
    begins = StartLife(0, 2, 1, before=(0,))  # nothing was asked of it in the epoch before
    s.tell(epoch_asked(1), begins, send(0, ticket(1, 0, epoch=1), life=2))


def test_a_seat_whose_life_was_leaving_when_the_epoch_began_gets_a_new_one() -> None:
    s = Script(Plan(seats=2, window=2), batches=0).begin().ready(0, 1)
    s.tell(ASK, stop(0), stop(1), FINISH)
    s.refill(MANY)
    s.tell(epoch_asked(1))
    s.dies(
        0,
        start(0, life=2, epoch=1),
        send(0, ticket(1, 0, epoch=1), ticket(2, 1, epoch=1), life=2),
        ending=LEFT,
    )
    s.dies(1, start(1, life=2, epoch=1), ending=LEFT)


# ---- the end --------------------------------------------------------------------------------

ENDING = Limits(stop_s=0.25, stop_idle_s=1.0, terminate_s=0.125, kill_s=4.0)


def test_a_close_asks_then_terminates_then_kills_then_goes_on_alone() -> None:
    s = Script(Plan(seats=3, window=6, limits=ENDING), batches=MANY).begin().ready(0, 1)
    s.loaded(1, 2)
    s.at(10.0).tell(CLOSE, drop(2), stop(0), stop(1), stop(2))
    s.dies(0, ending=LEFT)
    assert s.sup.next_wakeup() == 10.25
    s.at(10.25).tell(RING, terminate(1), terminate(2))
    assert s.sup.next_wakeup() == 10.375
    s.tell(LifeReady(2, 1))  # crossed with the stop
    s.at(10.375).tell(RING, kill(1), kill(2))
    s.dies(2)
    assert s.sup.next_wakeup() == 14.375
    s.at(14.375).tell(RING, abandon(1))
    assert s.sup.at_rest
    assert s.sup.next_wakeup() is None


def test_after_a_close_nothing_has_any_effect() -> None:
    s = Script(Plan(seats=2, window=2, limits=ENDING), batches=MANY).begin().ready(0, 1)
    s.tell(CLOSE, stop(0), stop(1))
    s.tell(CLOSE)
    s.tell(epoch_asked(1))
    s.tell(ASK, FINISH)
    s.tell(drawn(9))
    s.tell(SamplerEnded())
    s.tell(SamplerFailed())
    s.tell(LifeReady(0, 1))
    s.tell(EpochBegun(0, 1, 0))
    s.loaded(0, 1, drop(1))
    s.dies(0)
    s.dies(0)
    s.dies(1, ending=LEFT)
    s.at(1000.0).tell(RING)
    assert s.sup.at_rest
    assert s.sup.run is Run.CLOSED


def test_a_close_before_the_first_epoch_has_nothing_to_do() -> None:
    s = Script(Plan(seats=2, window=2))
    s.tell(ASK, FINISH)
    s.tell(CLOSE)
    assert s.sup.at_rest


def test_a_close_ends_also_a_life_that_is_being_killed_and_a_rest() -> None:
    limits = Limits(silent_s=5.0, rest_s=50.0, rest_max_s=50.0, kill_s=4.0, attempts=9, tries=9)
    s = Script(Plan(seats=1, window=1, limits=limits), batches=1).begin().ready(0)
    s.silent(0).at(5.0)
    s.tell(RING, kill(0), start(0, life=2), send(0, ticket(2, 0, attempt=2), life=2))
    s.ready(0, life=2)
    s.dies(0, life=2)  # rests
    s.tell(CLOSE)
    assert s.sup.next_wakeup() == 9.0  # for life 1; the rest is off
    s.at(9.0).tell(RING, abandon(0))
    s.dies(0)  # after all; nobody cares
    assert s.sup.at_rest
    assert s.sup.next_wakeup() is None


def test_an_idle_life_has_longer_to_leave_than_a_busy_one() -> None:
    s = Script(Plan(seats=3, window=1, limits=ENDING), batches=1).begin().ready(0, 1)
    s.tell(CLOSE, stop(0), stop(1), stop(2))
    s.at(0.25).tell(RING, terminate(0), terminate(2))  # busy, and not yet up
    s.at(0.375).tell(RING, kill(0), kill(2))
    s.at(1.0).tell(RING, late(1, 1.0), terminate(1))


def test_the_end_of_an_epoch_gets_harder_too_if_a_life_does_not_leave() -> None:
    s = Script(Plan(seats=1, window=1, limits=ENDING), batches=0).begin().ready(0)
    s.tell(ASK, stop(0), FINISH)
    s.at(1.0).tell(RING, late(0, 1.0), terminate(0))
    s.at(1.125).tell(RING, kill(0))
    s.at(5.125).tell(RING, abandon(0))
    assert s.sup.at_rest


# ---- a channel that closes ------------------------------------------------------------------


def test_a_life_that_closes_its_channel_and_ends_is_told_by_its_end() -> None:
    s = Script(Plan(seats=1, window=1), batches=1).begin().ready(0)
    s.tell(LifeSilent(0, 1))
    s.dies(0, start(0, life=2), send(0, ticket(2, 0, attempt=2), life=2))


def test_a_life_that_lives_on_without_its_channel_is_replaced() -> None:
    s = Script(Plan(seats=1, window=1, limits=Limits(silent_s=1.0)), batches=1).begin().ready(0)
    s.tell(LifeSilent(0, 1))
    s.at(1.0).tell(RING, kill(0), start(0, life=2), send(0, ticket(2, 0, attempt=2), life=2))


def test_a_life_that_closes_its_channel_while_it_leaves_is_left_alone() -> None:
    s = Script(Plan(seats=1, window=1), batches=0).begin().ready(0)
    s.tell(ASK, stop(0), FINISH)
    s.tell(LifeSilent(0, 1))
    s.tell(LifeSilent(0, 7))  # a stranger
    s.dies(0, ending=LEFT)


# ---- somebody else tells what happens while the loop is away -------------------------------------


def test_while_the_loop_is_away_the_others_take_over_and_nobody_is_started() -> None:
    s = Script(Plan(seats=2, window=4), batches=MANY).begin().ready(0, 1)
    s.tell(LoopLeft())
    s.dies(1, send(0, ticket(5, 1, attempt=2), ticket(6, 3)))
    s.tell(ASK, start(1, life=2))
    s.loaded(0, 1, deliver(1), send(1, ticket(7, 4), life=2))


def test_when_all_are_gone_while_the_loop_is_away_they_are_started_when_it_asks() -> None:
    s = Script(Plan(seats=1, window=2), batches=MANY).begin().ready(0)
    s.tell(LoopLeft())
    s.dies(0)
    assert s.sup.next_wakeup() is None  # nobody is late who was not asked to come
    s.at(1000.0).tell(ASK, start(0, life=2), send(0, ticket(3, 0, attempt=2), ticket(4, 1), life=2))


def test_a_life_that_was_idle_when_it_ended_is_blamed_for_nothing() -> None:
    s = Script(Plan(seats=1, window=2, limits=Limits(attempts=1)), batches=2).begin().ready(0)
    s.perform(LifeEnded(0, 1, KILLED, working_on=0))
    s.ready(0, life=2)
    s.tell(ASK)
    s.loaded(0, 3, deliver(3), life=2)


def test_a_loop_that_waits_cannot_have_left() -> None:
    s = Script(Plan(seats=1, window=1), batches=MANY).begin().ready(0)
    s.tell(ASK)
    s.tell(LoopLeft())
    s.loaded(0, 1, deliver(1), send(0, ticket(2, 1)))


# ---- torch's draws -------------------------------------------------------------------------------

# A window taken literally, and every seat in its turn.
IN_TURN = Plan(seats=2, window=4, longest_bundle=1, torch_draws=True)


def seats_of(commands: list[Command]) -> list[int]:
    return [each.seat for each in commands if isinstance(each, SendTickets)]


def test_where_draws_are_torchs_a_slow_seat_gets_its_batches_in_its_turn() -> None:
    script = Script(IN_TURN, MANY)
    assert seats_of(script.perform(epoch_asked())) == [0, 1, 0, 1]
    script.ready(0, 1)
    script.loaded(0, 1)
    script.loaded(0, 3)  # it has nothing to do now, and seat 1 has two batches
    assert seats_of(script.perform(ASK)) == [0]  # batch 4, as torch deals it
    script.perform(ASK)
    script.loaded(1, 2, deliver(2), send(1, ticket(6, 5)))


def test_where_draws_are_torchs_a_new_life_knows_that_others_have_drawn_before_it() -> None:
    script = Script(IN_TURN, MANY).begin().ready(0, 1)
    (started,) = (each for each in script.perform(LifeEnded(1, 1, KILLED)) if is_start(each))
    assert started == StartLife(1, 2, 0, heir=1)


def test_where_draws_are_torchs_a_life_that_never_began_has_drawn_nothing() -> None:
    script = Script(IN_TURN, MANY).begin().ready(0)
    (started,) = (each for each in script.perform(LifeEnded(1, 1, KILLED)) if is_start(each))
    assert started == StartLife(1, 2, 0)


def is_start(command: Command) -> bool:
    return isinstance(command, StartLife)


def test_where_draws_are_torchs_nobody_is_let_go_while_the_loop_is_away() -> None:
    for plan, stops in ((replace(IN_TURN, torch_draws=False), True), (IN_TURN, False)):
        script = Script(plan, 2).begin().ready(0, 1)
        script.loaded(0, 1)
        script.loaded(1, 2)
        commands = script.perform(LoopLeft(for_good=True))
        assert any(isinstance(each, StopLife) for each in commands) is stops
