"""Break the supervisor on purpose: `check()` must say so, or it is worth nothing."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import pytest

from antifreeze._core.deadlines import DeadlineKind
from antifreeze._core.events import LifeEnded
from antifreeze._core.leases import Lease, LeaseState
from antifreeze._core.plan import Drawing, Limits, Plan, Source
from antifreeze._core.reorder import Order
from antifreeze._core.seats import Life, LifeState, SeatState
from antifreeze._core.supervisor import Supervisor
from antifreeze._core.tickets import Ticket

from .script import ASK, CLOSE, KILLED, RING, Script

LIMITS = Limits(attempts=1, ticket_s=5.0, start_s=10.0)
Damage = Callable[[Supervisor], object]


def busy() -> Supervisor:
    """Give a supervisor in the middle of everything, and sound.

    Seat 0 serves and holds positions 0 and 3. Seat 1 brought position 1, lost position 4 in a
    crash and rests. Seat 2 did not come up: its life 1 is dying, its life 2 is starting and holds
    positions 2 and 5. The loop waits for position 0.
    """
    plan = Plan(seats=3, window=6, timeout_s=60.0, limits=LIMITS)
    s = Script(plan, batches=9).begin()
    s.at(8.0).ready(0, 1)
    s.tell(ASK)
    s.at(9.0).loaded(1, 2)
    s.at(10.0).perform(RING)
    for life in (1, 2, 3):
        s.perform(LifeEnded(1, life, KILLED))
    sup = s.sup
    zero, one, two = sup._seats.all
    assert _held(zero.life) == [0, 3]
    assert one.state is SeatState.RESTING
    assert _held(two.life) == [2, 5]
    assert list(sup._dying) == [(2, 1)]
    assert sorted(sup._ledger.window._arrived) == [1, 4]
    return sup


def _held(life: Life | None) -> list[int]:
    return [ticket.position for ticket, _ in _life(life).held.values()]


def _life(life: Life | None) -> Life:
    assert life is not None
    return life


def _serving(sup: Supervisor) -> Life:
    return _life(sup._seats.all[0].life)


def _first(life: Life) -> tuple[Ticket, Lease]:
    return next(iter(life.held.values()))


def _dying(sup: Supervisor) -> Life:
    return sup._dying[2, 1]


def _take_back(sup: Supervisor) -> list[Ticket]:
    """Take all tickets from seat 0 by the rules: give back the room, settle what it owes."""
    tickets = []
    for ticket, lease in _serving(sup).held.values():
        sup._ledger.leases.free(lease)
        sup._seats.all[0].undelivered -= 1
        tickets.append(ticket)
    _serving(sup).held.clear()
    sup._deadlines.clear((DeadlineKind.TICKET, 0, 1))
    return tickets


# ---- tickets --------------------------------------------------------------------------------


def a_ticket_is_with_two_lives(sup: Supervisor) -> None:
    ticket, lease = _first(_serving(sup))
    _life(sup._seats.all[2].life).held[ticket.number] = (ticket, lease)


def a_ticket_is_with_a_life_and_pending(sup: Supervisor) -> None:
    sup._ledger.pending.append(_first(_serving(sup))[0])


def a_ticket_is_nowhere(sup: Supervisor) -> None:
    _take_back(sup)


def a_ticket_nobody_waits_for(sup: Supervisor) -> None:
    sup._ledger.pending.append(Ticket(99, 0, 77, [77]))


def pending_tickets_are_out_of_order(sup: Supervisor) -> None:
    sup._ledger.pending.extend(reversed(_take_back(sup)))


def a_ticket_has_had_too_many_attempts(sup: Supervisor) -> None:
    sup._ledger.pending.extend(replace(ticket, attempt=2) for ticket in _take_back(sup))


def a_ticket_of_another_epoch_is_held(sup: Supervisor) -> None:
    held = _serving(sup).held
    number, (ticket, lease) = next(iter(held.items()))
    held[number] = (replace(ticket, epoch=ticket.epoch - 1), lease)


def a_seat_owes_more_than_it_has(sup: Supervisor) -> None:
    sup._seats.all[0].undelivered += 1


def a_seat_at_rest_owes_less_than_it_brought(sup: Supervisor) -> None:
    sup._seats.all[1].undelivered = 0


def more_is_drawn_than_the_window_holds(sup: Supervisor) -> None:
    sup._ledger.pending.append(sup._ledger.draw(0, [6]))


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
    sup._ledger.leases.free(_first(_serving(sup))[1])


def room_that_a_dying_life_may_write_to_is_free(sup: Supervisor) -> None:
    sup._ledger.leases.free(_dying(sup).leases()[0])


def room_that_holds_a_parcel_is_free(sup: Supervisor) -> None:
    ((_, lease),) = sup._ledger.arrived.values()
    sup._ledger.leases.free(lease)


def room_is_lent_to_nobody(sup: Supervisor) -> None:
    assert sup._ledger.leases.lend() is not None


def room_is_lost(sup: Supervisor) -> None:
    leases = sup._ledger.leases
    leases._states[leases._free.pop()] = LeaseState.RETIRED


def a_free_slot_is_listed_twice(sup: Supervisor) -> None:
    free = sup._ledger.leases._free
    free[0] = free[1]


def a_lent_slot_is_listed_as_free(sup: Supervisor) -> None:
    leases = sup._ledger.leases
    leases._free[0] = _first(_serving(sup))[1].slot


def two_lives_hold_one_lease(sup: Supervisor) -> None:
    other = _life(sup._seats.all[2].life)
    number, (ticket, _) = next(iter(other.held.items()))
    other.held[number] = (ticket, _first(_serving(sup))[1])


# ---- lives ----------------------------------------------------------------------------------


def a_seat_keeps_a_life_that_is_gone(sup: Supervisor) -> None:
    _serving(sup).state = LifeState.GONE


def a_seat_at_rest_has_a_life(sup: Supervisor) -> None:
    sup._seats.all[1].life = Life(4, 0)


def a_lost_seat_has_a_life(sup: Supervisor) -> None:
    sup._seats.all[0].state = SeatState.LOST


def a_dying_life_is_not_condemned(sup: Supervisor) -> None:
    _dying(sup).state = LifeState.SERVING


def a_dying_life_holds_a_ticket(sup: Supervisor) -> None:
    ticket, lease = _first(_serving(sup))
    _dying(sup).held[ticket.number] = (ticket, lease)


def the_seats_that_may_load_are_miscounted(sup: Supervisor) -> None:
    sup._seats.loadable = False


# ---- bounds ---------------------------------------------------------------------------------


def a_seat_failed_to_start_too_often(sup: Supervisor) -> None:
    sup._seats.all[0].failed_starts = sup.plan.limits.failed_starts + 1


def a_seat_had_too_many_barren_lives(sup: Supervisor) -> None:
    sup._seats.all[0].barren = sup.plan.limits.barren_lives + 1


def deadlines_pile_up(sup: Supervisor) -> None:
    for life in range(20):
        sup._deadlines.set((DeadlineKind.KILL, 0, 100 + life), 99.0)


def a_starting_life_has_no_deadline(sup: Supervisor) -> None:
    sup._deadlines.clear((DeadlineKind.START, 2, 2))


def a_working_life_has_no_deadline(sup: Supervisor) -> None:
    sup._deadlines.clear((DeadlineKind.TICKET, 0, 1))


def a_dying_life_has_no_deadline(sup: Supervisor) -> None:
    sup._deadlines.clear((DeadlineKind.KILL, 2, 1))


def a_rest_has_no_end(sup: Supervisor) -> None:
    sup._deadlines.clear((DeadlineKind.REST, 1, -1))


def the_users_timeout_is_forgotten(sup: Supervisor) -> None:
    sup._deadlines.clear((DeadlineKind.LOOP, -1, -1))


DAMAGES: list[Damage] = [
    a_ticket_is_with_two_lives,
    a_ticket_is_with_a_life_and_pending,
    a_ticket_is_nowhere,
    a_ticket_nobody_waits_for,
    pending_tickets_are_out_of_order,
    a_ticket_has_had_too_many_attempts,
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
    room_is_lost,
    a_free_slot_is_listed_twice,
    a_lent_slot_is_listed_as_free,
    two_lives_hold_one_lease,
    a_seat_keeps_a_life_that_is_gone,
    a_seat_at_rest_has_a_life,
    a_lost_seat_has_a_life,
    a_dying_life_is_not_condemned,
    a_dying_life_holds_a_ticket,
    the_seats_that_may_load_are_miscounted,
    a_seat_failed_to_start_too_often,
    a_seat_had_too_many_barren_lives,
    deadlines_pile_up,
    a_starting_life_has_no_deadline,
    a_working_life_has_no_deadline,
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


def test_check_notices_when_something_is_drawn_that_nobody_asked_for() -> None:
    s = Script(Plan(seats=1, window=1, drawing=Drawing.ON_DEMAND), batches=5).begin().ready(0)
    s.perform(ASK)
    s.sup._ledger.pending.append(s.sup._ledger.draw(0, [1]))
    assert list(s.sup.check()) != []


def test_check_notices_when_streams_overfill_the_window() -> None:
    s = Script(Plan(seats=1, window=1, source=Source.STREAMS), batches=5).begin().ready(0)
    for place in (1, 2):  # one more than the fault of a broken stream could be
        s.sup._ledger.pending.append(s.sup._ledger.draw(0, [place]))
    assert list(s.sup.check()) != []


def test_check_notices_when_the_loop_waits_and_nobody_is_left_to_bring_anything() -> None:
    s = Script(Plan(seats=1, window=1), batches=1).begin().ready(0)
    s.perform(ASK)
    sup = s.sup
    (seat,) = sup._seats.all
    (ticket, lease) = _first(_life(seat.life))
    sup._ledger.leases.free(lease)
    sup._ledger.pending.append(ticket)
    seat.life, seat.undelivered, seat.state = None, 0, SeatState.LOST
    sup._seats.loadable = False
    assert list(sup.check()) != []
