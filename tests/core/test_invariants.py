"""Break the supervisor on purpose: `check()` must say so, or it is worth nothing."""

from __future__ import annotations

from dataclasses import replace

import pytest

from antifreeze._core.deadlines import DeadlineKind
from antifreeze._core.health.worker_phases import OURS
from antifreeze._core.limits import LIMITS
from antifreeze._core.loader_plan import Plan, Source
from antifreeze._core.reorder import Order
from antifreeze._core.slab_leases import Lease, LeaseState, LeaseTable
from antifreeze._core.supervisor import Supervisor
from antifreeze._core.tickets import Ticket
from antifreeze._core.worker_slots import Life, LifeState, SeatState

from .busy import Damage, busy, dying_in, first_of, life_in, parcel_of, serving, take_back
from .script import ASK, CLOSE, Script

# ---- tickets --------------------------------------------------------------------------------


def a_ticket_is_with_two_lives(sup: Supervisor) -> None:
    errand = first_of(serving(sup))
    life_in(sup._seats.all[2].life).held[errand.ticket.number] = errand


def a_ticket_is_with_a_life_and_pending(sup: Supervisor) -> None:
    sup._ledger.pending.append(first_of(serving(sup)).ticket)


def a_ticket_is_nowhere(sup: Supervisor) -> None:
    take_back(sup)


def a_ticket_nobody_waits_for(sup: Supervisor) -> None:
    sup._ledger.pending.append(Ticket(99, 1, 77, [77]))


def pending_tickets_are_out_of_order(sup: Supervisor) -> None:
    sup._ledger.pending.extend(reversed(take_back(sup)))


def a_ticket_has_had_too_many_attempts(sup: Supervisor) -> None:
    sup._ledger.pending.extend(replace(ticket, blamed=(OURS,)) for ticket in take_back(sup))


def a_ticket_has_been_tried_too_often(sup: Supervisor) -> None:
    blamed = tuple(range(sup.plan.limits.tries))
    sup._ledger.pending.extend(replace(ticket, blamed=blamed) for ticket in take_back(sup))


def a_ticket_of_another_epoch_is_held(sup: Supervisor) -> None:
    held = serving(sup).held
    number, errand = next(iter(held.items()))
    ticket = errand.ticket
    held[number] = replace(errand, ticket=replace(ticket, epoch=ticket.epoch - 1))


def a_seat_owes_more_than_it_has(sup: Supervisor) -> None:
    sup._seats.all[0].undelivered += 1


def a_seat_at_rest_owes_less_than_it_brought(sup: Supervisor) -> None:
    sup._seats.all[1].undelivered = 0


def more_is_drawn_than_the_window_holds(sup: Supervisor) -> None:
    for place in range(6, 6 * LIMITS.bundles.tickets + 1):
        sup._ledger.pending.append(sup._ledger.draw(sup._epoch, [place]))


def a_fault_is_forgotten(sup: Supervisor) -> None:
    sup._ledger._faults.clear()


def a_parcel_is_known_by_a_wrong_number(sup: Supervisor) -> None:
    sup._ledger.window._arrived[1] = 999


# ---- the window -----------------------------------------------------------------------------


def a_position_is_waited_for_and_has_arrived(sup: Supervisor) -> None:
    sup._ledger.window._waiting.add(1)


def a_position_lies_before_the_next_one(sup: Supervisor) -> None:
    sup._ledger.window._next = 2


def the_window_miscounts(sup: Supervisor) -> None:
    sup._ledger.window.count -= 1


# ---- leases ---------------------------------------------------------------------------------


def room_that_is_written_to_is_free(sup: Supervisor) -> None:
    serving(sup).leases.free(first_of(serving(sup)).lease)


def room_that_a_dying_life_may_write_to_is_free(sup: Supervisor) -> None:
    dying_in(sup).leases.free(dying_in(sup).lent()[0])


def room_that_holds_a_parcel_is_free(sup: Supervisor) -> None:
    arrival = parcel_of(sup)
    arrival.life.leases.free(arrival.lease)


def room_is_lent_to_nobody(sup: Supervisor) -> None:
    assert serving(sup).leases.lend() is not None


def room_is_lent_to_nobody_by_a_dying_life(sup: Supervisor) -> None:
    assert dying_in(sup).leases.lend() is not None


def a_parcel_is_sealed_that_is_still_written(sup: Supervisor) -> None:
    serving(sup).leases.seal(first_of(serving(sup)).lease)


def _with_a_free_slot(life: Life) -> LeaseTable:
    lease = life.leases.lend()
    assert lease is not None
    life.leases.free(lease)
    return life.leases


def a_free_slot_is_listed_twice(sup: Supervisor) -> None:
    leases = _with_a_free_slot(serving(sup))
    leases._free.append(leases._free[0])


def a_free_slot_is_forgotten(sup: Supervisor) -> None:
    _with_a_free_slot(serving(sup))._free.clear()


def a_lent_slot_is_listed_as_free(sup: Supervisor) -> None:
    serving(sup).leases._free.append(first_of(serving(sup)).lease.slot)


def a_life_has_more_slots_than_it_may(sup: Supervisor) -> None:
    leases = serving(sup).leases
    while len(leases._states) <= sup.plan.leases_a_life:
        leases._free.append(len(leases._states))
        leases._states.append(LeaseState.FREE)
        leases._generations.append(0)


def a_slot_is_to_be_renewed_that_is_in_use(sup: Supervisor) -> None:
    serving(sup).leases._spoiled.add(first_of(serving(sup)).lease.slot)


def a_slot_is_to_be_renewed_that_never_was(sup: Supervisor) -> None:
    serving(sup).leases._spoiled.add(len(serving(sup).leases._states))


def two_tickets_hold_one_lease(sup: Supervisor) -> None:
    held = serving(sup).held
    first, second = held
    held[second] = replace(held[second], lease=held[first].lease)


def an_outdated_lease_is_held(sup: Supervisor) -> None:
    held = serving(sup).held
    number, errand = next(iter(held.items()))
    lease = errand.lease
    held[number] = replace(errand, lease=Lease(lease.slot, lease.generation + 1))


def a_slab_that_the_loop_looks_at_is_free(sup: Supervisor) -> None:
    life, lease = next(iter(sup._ledger.kept.values()))
    life.leases.free(lease)


def a_slab_that_the_loop_looks_at_is_forgotten(sup: Supervisor) -> None:
    sup._ledger.kept.clear()


def a_slab_is_kept_that_nobody_looks_at(sup: Supervisor) -> None:
    life = serving(sup)
    lease = life.leases.lend()
    assert lease is not None
    life.leases.seal(lease)
    life.leases.keep(lease)


def the_loop_keeps_too_many_slabs(sup: Supervisor) -> None:
    gone = Life(99, LeaseTable(99), state=LifeState.GONE)
    for _ in range(sup.plan.kept):
        lease = gone.leases.lend()
        assert lease is not None
        gone.leases.seal(lease)
        gone.leases.keep(lease)
        sup._ledger.kept[1, 99, lease.slot, lease.generation] = (gone, lease)


# ---- lives ----------------------------------------------------------------------------------


def a_seat_keeps_a_life_that_is_gone(sup: Supervisor) -> None:
    serving(sup).state = LifeState.GONE


def a_seat_at_rest_has_a_life(sup: Supervisor) -> None:
    sup._seats.all[1].life = Life(4, LeaseTable(1))


def a_lost_seat_has_a_life(sup: Supervisor) -> None:
    sup._seats.all[0].state = SeatState.LOST


def a_dying_life_is_not_condemned(sup: Supervisor) -> None:
    dying_in(sup).state = LifeState.SERVING


def a_dying_life_holds_a_ticket(sup: Supervisor) -> None:
    errand = first_of(serving(sup))
    dying_in(sup).held[errand.ticket.number] = errand


def the_seats_that_may_load_are_miscounted(sup: Supervisor) -> None:
    sup._seats.loadable = False


# ---- bounds ---------------------------------------------------------------------------------


def a_seat_failed_to_start_too_often(sup: Supervisor) -> None:
    sup._seats.all[0].failed_starts = sup.plan.limits.failed_starts + 1


def a_seat_had_too_many_barren_lives(sup: Supervisor) -> None:
    sup._seats.all[0].barren = sup.plan.limits.barren_lives + 1


def bundles_are_too_long(sup: Supervisor) -> None:
    sup._bundles.tickets = LIMITS.bundles.tickets + 1


def deadlines_pile_up(sup: Supervisor) -> None:
    for life in range(20):
        sup._deadlines.set((DeadlineKind.KILL, 0, 100 + life), 99.0)


def a_starting_life_has_no_deadline(sup: Supervisor) -> None:
    sup._deadlines.clear((DeadlineKind.START, 2, 2))


def a_dying_life_has_no_deadline(sup: Supervisor) -> None:
    sup._deadlines.clear((DeadlineKind.KILL, 2, 1))


def a_rest_has_no_end(sup: Supervisor) -> None:
    sup._deadlines.clear((DeadlineKind.REST, 1, -1))


def the_users_timeout_is_forgotten(sup: Supervisor) -> None:
    sup._deadlines.clear((DeadlineKind.TIMEOUT, -1, -1))


DAMAGES: list[Damage] = [
    a_ticket_is_with_two_lives,
    a_ticket_is_with_a_life_and_pending,
    a_ticket_is_nowhere,
    a_ticket_nobody_waits_for,
    pending_tickets_are_out_of_order,
    a_ticket_has_had_too_many_attempts,
    a_ticket_has_been_tried_too_often,
    a_ticket_of_another_epoch_is_held,
    a_seat_owes_more_than_it_has,
    a_seat_at_rest_owes_less_than_it_brought,
    more_is_drawn_than_the_window_holds,
    a_fault_is_forgotten,
    a_parcel_is_known_by_a_wrong_number,
    a_position_is_waited_for_and_has_arrived,
    a_position_lies_before_the_next_one,
    the_window_miscounts,
    room_that_is_written_to_is_free,
    room_that_a_dying_life_may_write_to_is_free,
    room_that_holds_a_parcel_is_free,
    room_is_lent_to_nobody,
    room_is_lent_to_nobody_by_a_dying_life,
    a_parcel_is_sealed_that_is_still_written,
    a_free_slot_is_listed_twice,
    a_free_slot_is_forgotten,
    a_lent_slot_is_listed_as_free,
    a_life_has_more_slots_than_it_may,
    a_slot_is_to_be_renewed_that_is_in_use,
    a_slot_is_to_be_renewed_that_never_was,
    two_tickets_hold_one_lease,
    an_outdated_lease_is_held,
    a_slab_that_the_loop_looks_at_is_free,
    a_slab_that_the_loop_looks_at_is_forgotten,
    a_slab_is_kept_that_nobody_looks_at,
    the_loop_keeps_too_many_slabs,
    a_seat_keeps_a_life_that_is_gone,
    a_seat_at_rest_has_a_life,
    a_lost_seat_has_a_life,
    a_dying_life_is_not_condemned,
    a_dying_life_holds_a_ticket,
    the_seats_that_may_load_are_miscounted,
    a_seat_failed_to_start_too_often,
    a_seat_had_too_many_barren_lives,
    bundles_are_too_long,
    deadlines_pile_up,
    a_starting_life_has_no_deadline,
    a_dying_life_has_no_deadline,
    a_rest_has_no_end,
    the_users_timeout_is_forgotten,
]


def test_a_busy_supervisor_is_sound() -> None:
    assert list(busy().check()) == []


@pytest.mark.parametrize("damage", DAMAGES, ids=lambda damage: damage.__name__)
def test_check_notices_when(damage: Damage) -> None:
    sup = busy()
    damage(sup)
    assert list(sup.check()) != []


def test_check_notices_when_a_life_that_was_asked_to_leave_has_no_deadline() -> None:
    s = Script(Plan(seats=1, window=1), batches=1).begin().ready(0)
    s.perform(CLOSE)
    s.sup._deadlines.clear((DeadlineKind.STOP, 0, 1))
    assert list(s.sup.check()) != []


def test_check_notices_when_the_order_of_arrival_is_lost() -> None:
    s = Script(Plan(seats=1, window=2, order=Order.OVERTAKE), batches=2).begin().ready(0)
    s.loaded(0, 2)
    s.sup._ledger.window._ready.clear()
    assert list(s.sup.check()) != []


def test_check_notices_when_more_is_drawn_than_a_window_taken_literally_holds() -> None:
    s = Script(Plan(seats=1, window=1, longest_bundle=1), batches=5).begin().ready(0)
    s.sup._ledger.pending.append(s.sup._ledger.draw(0, [1]))
    assert list(s.sup.check()) != []


def test_check_notices_when_streams_overfill_the_window() -> None:
    s = Script(Plan(seats=1, window=1, source=Source.STREAMS), batches=5).begin().ready(0)
    for place in range(
        1, LIMITS.bundles.tickets + 2
    ):  # one more than the fault of a broken stream could be
        s.sup._ledger.pending.append(s.sup._ledger.draw(0, [place]))
    assert list(s.sup.check()) != []


def test_check_notices_when_the_loop_waits_and_nobody_is_left_to_bring_anything() -> None:
    s = Script(Plan(seats=1, window=1), batches=1).begin().ready(0)
    s.perform(ASK)
    sup = s.sup
    (seat,) = sup._seats.all
    errand = first_of(life_in(seat.life))
    life_in(seat.life).leases.free(errand.lease)
    sup._ledger.pending.append(errand.ticket)
    seat.life, seat.undelivered, seat.state = None, 0, SeatState.LOST
    sup._seats.loadable = False
    assert list(sup.check()) != []
