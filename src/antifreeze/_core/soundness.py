"""One invariant for each bound: what must hold after every step of the supervisor."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from typing import TYPE_CHECKING

from .leases import LeaseState
from .plan import Drawing, Source
from .seats import LIVE, MAY_LOAD, LifeState, SeatState

if TYPE_CHECKING:
    from .supervisor import Supervisor


def unsound(sup: Supervisor) -> Iterator[str]:
    """Yield a sentence for everything that should not be."""
    yield from sup._ledger.window.unsound()
    yield from sup._ledger.leases.unsound()
    yield from _tickets(sup)
    yield from _leases(sup)
    yield from _lives(sup)
    yield from _bounds(sup)


def _tickets(sup: Supervisor) -> Iterator[str]:
    """Every position that is waited for is in exactly one place."""
    ledger = sup._ledger
    places = Counter(ticket.position for ticket in ledger.pending)
    for seat in sup._seats.all:
        if seat.life is not None:
            places.update(ticket.position for ticket, _ in seat.life.held.values())
    if places.keys() != ledger.window._waiting:
        yield f"waited for {sorted(ledger.window._waiting)}, but there are {sorted(places)}"
    if twice := [position for position, count in places.items() if count > 1]:
        yield f"positions {twice} are in two places"
    positions = [ticket.position for ticket in ledger.pending]
    if positions != sorted(positions):
        yield f"pending tickets are out of order: {positions}"
    if ledger.window.count > sup.plan.window + sup.plan.seats:
        # a broken stream may add one position of its own for each seat
        yield f"{ledger.window.count} tickets in a window of {sup.plan.window}"
    if sup.plan.source is Source.INDICES and ledger.window.count > sup.plan.window:
        yield f"{ledger.window.count} tickets in a window of {sup.plan.window}"
    for seat in sup._seats.all:
        held = 0 if seat.life is None else len(seat.life.held)
        arrived = sum(owner is seat for owner, _ in ledger.arrived.values())
        if seat.undelivered != held + arrived:
            yield f"seat {seat.number} owes {seat.undelivered}, not {held} + {arrived}"
    for ticket in ledger.pending:
        if ticket.attempt > sup.plan.limits.attempts:
            yield f"{ticket} has more attempts than {sup.plan.limits.attempts}"


def _leases(sup: Supervisor) -> Iterator[str]:
    """Every lease is held once, and room is neither lost nor found."""
    leases = sup._ledger.leases
    lives = [seat.life for seat in sup._seats.all if seat.life is not None]
    lent = [lease for life in lives for lease in life.leases()]
    dying = [lease for life in sup._dying.values() for lease in life.leases()]
    sealed = [lease for _, lease in sup._ledger.arrived.values()]
    for state, holders in (
        (LeaseState.LENT, lent),
        (LeaseState.QUARANTINED, dying),
        (LeaseState.SEALED, sealed),
    ):
        if len(holders) != leases.count(state) or any(
            leases.state(lease) is not state for lease in holders
        ):
            yield f"{len(holders)} leases held, {leases.count(state)} are {state.value}"
    if leases.capacity != 2 * sup.plan.window:
        yield f"there is room for {leases.capacity} parcels, not {2 * sup.plan.window}"


def _lives(sup: Supervisor) -> Iterator[str]:
    """A seat has one life that counts; what is dying holds no tickets."""
    for seat in sup._seats.all:
        if seat.life is not None and seat.life.state not in LIVE:
            yield f"seat {seat.number} keeps a life that is {seat.life.state.value}"
        if seat.life is not None and seat.state in (SeatState.RESTING, SeatState.LOST):
            yield f"seat {seat.number} is {seat.state.value} and has a life"
    for (number, life_number), life in sup._dying.items():
        if life.state is not LifeState.CONDEMNED or life.held:
            yield f"dying life {life_number} of seat {number} is {life.state.value}"


def _bounds(sup: Supervisor) -> Iterator[str]:
    limits = sup.plan.limits
    if sup._seats.loadable != any(seat.state in MAY_LOAD for seat in sup._seats.all):
        yield f"loadable is {sup._seats.loadable}, the seats say otherwise"
    for seat in sup._seats.all:
        if seat.failed_starts > limits.failed_starts:
            yield f"seat {seat.number} failed to start {seat.failed_starts} times"
        if seat.barren > limits.barren_lives:
            yield f"seat {seat.number} had {seat.barren} barren lives"
    most = 1 + sup.plan.seats + len(sup._dying) + sup.plan.seats
    if len(sup._deadlines) > most:
        yield f"{len(sup._deadlines)} deadlines, at most {most} make sense"
    if sup.plan.drawing is Drawing.ON_DEMAND and sup._ledger.window.count > 1:
        yield "drew ahead although it should not"
