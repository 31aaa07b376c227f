"""A supervisor in the middle of everything, to be damaged; and words for its parts."""

from __future__ import annotations

from collections.abc import Callable

from antifreeze._core.events import LifeEnded, LivesSeen
from antifreeze._core.health.stall_detection import Sight
from antifreeze._core.health.worker_phases import SAMPLE
from antifreeze._core.limits import Limits
from antifreeze._core.loader_plan import Plan, Tenure
from antifreeze._core.supervisor import Supervisor
from antifreeze._core.ticket_tracking import Arrival
from antifreeze._core.tickets import Errand, Ticket
from antifreeze._core.worker_slots import Life, SeatState

from .script import ASK, KILLED, RING, Script, deliver, in_slab

LIMITS = Limits(attempts=1, start_s=10.0, look_s=20.0)
Damage = Callable[[Supervisor], object]


def busy() -> Supervisor:
    """Give a supervisor in the middle of everything, and sound.

    The loop keeps a slab of seat 0 from the epoch before. Seat 0 serves and holds positions 0 and
    3. Seat 1 brought position 1, lost position 4 in a crash and rests. Seat 2 did not come up: its
    life 1 is dying, its life 2 is starting and holds positions 2 and 5. The loop waits for
    position 0, and seat 0 was seen at work on it.
    """
    plan = Plan(seats=3, window=6, timeout_s=60.0, limits=LIMITS, tenure=Tenure.LOADER)
    s = Script(plan, batches=1).begin().ready(0)
    s.tell(ASK)
    s.tell(in_slab(0, 1), deliver(1))
    s.refill(9)
    s.begin(1).at(8.0).ready(0, 1)
    s.tell(ASK)
    s.at(9.0).loaded(1, 3)
    s.at(10.0).perform(RING)
    for life in (1, 2, 3):
        s.perform(LifeEnded(1, life, KILLED))
    sup = s.sup
    s.perform(LivesSeen((Sight(0, 1, next(iter(serving(sup).held)), SAMPLE),)))
    zero, one, two = sup._seats.all
    assert positions(zero.life) == [0, 3]
    assert one.state is SeatState.RESTING
    assert positions(two.life) == [2, 5]
    assert list(sup._dying) == [(2, 1)]
    assert sorted(sup._ledger.window._arrived) == [1, 4]
    assert list(sup._ledger.kept) == [(0, 1, 0, 1)]
    assert list(sup._health.stalls._calls) == [(0, 1)]
    return sup


def positions(life: Life | None) -> list[int]:
    return [errand.ticket.position for errand in life_in(life).held.values()]


def life_in(life: Life | None) -> Life:
    assert life is not None
    return life


def serving(sup: Supervisor) -> Life:
    return life_in(sup._seats.all[0].life)


def first_of(life: Life) -> Errand:
    return next(iter(life.held.values()))


def parcel_of(sup: Supervisor) -> Arrival:
    """Give the one parcel that has arrived."""
    (arrival,) = sup._ledger.arrived.values()
    return arrival


def dying_in(sup: Supervisor) -> Life:
    return sup._dying[2, 1]


def take_back(sup: Supervisor) -> list[Ticket]:
    """Take all tickets from seat 0 by the rules: give back the room, settle what it owes."""
    tickets = []
    for errand in serving(sup).held.values():
        serving(sup).leases.free(errand.lease)
        sup._seats.all[0].undelivered -= 1
        tickets.append(errand.ticket)
    serving(sup).held.clear()
    return tickets
