"""One invariant for each bound: what must hold after every step of the supervisor."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from typing import TYPE_CHECKING

from ..deadlines import TIMEOUT_KEY, DeadlineKind
from ..health.health_checks import LOOK_KEY
from ..loader_plan import Source
from ..slab_leases import LeaseState
from ..states import Loop, Run, Sampling
from ..worker_slots import EMPLOYED, LIVE, MAY_LOAD, Life, LifeState, SeatState

if TYPE_CHECKING:
    from ..supervisor import Supervisor


def unsound(sup: Supervisor) -> Iterator[str]:
    """Yield a sentence for everything that should not be."""
    yield from sup._ledger.window.unsound()
    yield from _tickets(sup)
    yield from _arrivals(sup)
    yield from _leases(sup)
    yield from _lives(sup)
    yield from _deadlines(sup)
    yield from _looks(sup)
    yield from _progress(sup)
    yield from _bounds(sup)
    yield from _records(sup)


def _tickets(sup: Supervisor) -> Iterator[str]:
    """Every position that is waited for is in exactly one place."""
    ledger = sup._ledger
    tickets = list(ledger.pending)
    for seat in sup._seats.all:
        held = [] if seat.life is None else [e.ticket for e in seat.life.held.values()]
        tickets.extend(held)
        arrived = sum(arrival.seat is seat for arrival in ledger.arrived.values())
        if seat.undelivered != len(held) + arrived:
            yield f"seat {seat.number} owes {seat.undelivered}, not {len(held)} + {arrived}"
    places = Counter(ticket.position for ticket in tickets)
    if places.keys() != ledger.window._waiting:
        yield f"waited for {sorted(ledger.window._waiting)}, but there are {sorted(places)}"
    if twice := [position for position, count in places.items() if count > 1]:
        yield f"positions {twice} are in two places"
    positions = [ticket.position for ticket in ledger.pending]
    if positions != sorted(positions):
        yield f"pending tickets are out of order: {positions}"
    for ticket in tickets:
        if any(ticket.blamed.count(step) >= sup.plan.limits.attempts for step in ticket.blamed):
            yield f"a step of {ticket} has more attempts than {sup.plan.limits.attempts}"
        if ticket.attempt > sup.plan.limits.tries:
            yield f"{ticket} has more tries than {sup.plan.limits.tries}"
        if len(ticket.spared) > sup.plan.limits.spared:
            yield f"{ticket} has more samples spared than {sup.plan.limits.spared}"
        if ticket.spared and not sup.plan.spares:
            yield f"{ticket} has samples spared, and there is no policy for them"
        if ticket.epoch != sup._epoch:
            yield f"{ticket} is of another epoch than {sup._epoch}"


def _arrivals(sup: Supervisor) -> Iterator[str]:
    """What has arrived in the window is a parcel or a fault, and nothing else is kept."""
    ledger = sup._ledger
    in_window = set(ledger.window._arrived.values())
    kept = ledger.arrived.keys() | ledger._faults.keys()
    if in_window != kept:
        yield f"arrived in the window: {sorted(in_window)}, kept: {sorted(kept)}"


def _leases(sup: Supervisor) -> Iterator[str]:
    """Every lease of every life is held once, and room is neither lost nor found."""
    ledger = sup._ledger
    lives = {id(life): life for _, life in sup._seats.living()}
    lives.update((id(life), life) for life in sup._dying.values())
    # What is gone may have left parcels, or slabs that the loop looks at.
    lives.update((id(arrival.life), arrival.life) for arrival in ledger.arrived.values())
    lives.update((id(life), life) for life, _ in ledger.kept.values())
    for life in lives.values():
        yield from life.leases.unsound()
        for states, holders in (
            ((LeaseState.LENT,), life.lent()),
            ((LeaseState.SEALED,), [a.lease for a in ledger.arrived.values() if a.life is life]),
            (
                (LeaseState.KEPT, LeaseState.SPOILED),
                [lease for owner, lease in ledger.kept.values() if owner is life],
            ),
        ):
            words = " or ".join(state.value for state in states)
            if len(holders) != life.leases.count(*states) or len(set(holders)) != len(holders):
                yield f"{len(holders)} leases held, {life.leases.count(*states)} are {words}"
            if any(life.leases.state(lease) not in states for lease in holders):
                yield f"a holder believes its lease to be {words}, and it is not"
    if len(ledger.kept) > sup.plan.kept:
        yield f"the loop keeps {len(ledger.kept)} slabs, more than {sup.plan.kept}"


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
    if sup._seats.loadable != any(seat.state in MAY_LOAD for seat in sup._seats.all):
        yield f"loadable is {sup._seats.loadable}, the seats say otherwise"


def _deadlines(sup: Supervisor) -> Iterator[str]:
    """Nobody is waited for without a deadline."""
    has = sup._deadlines.has
    for seat in sup._seats.all:
        if seat.life is not None and not any(
            has((kind, seat.number, seat.life.number)) for kind in _needed(seat.life)
        ):
            yield f"seat {seat.number}, life {seat.life.number} has no deadline"
        if (seat.state is SeatState.RESTING) != has((DeadlineKind.REST, seat.number, -1)):
            yield f"seat {seat.number} is {seat.state.value}; its rest has no end or no reason"
    for number, life in sup._dying:
        if not has((DeadlineKind.KILL, number, life)):
            yield f"seat {number}, life {life} is dying without a deadline"
    waiting = sup._loop is Loop.WAITING and sup.plan.timeout_s > 0
    if waiting != has(TIMEOUT_KEY):
        yield "the user's timeout does not run while the loop waits, or runs while it does not"
    most = 2 + 3 * sup.plan.seats + len(sup._dying)
    if len(sup._deadlines) > most:
        yield f"{len(sup._deadlines)} deadlines, at most {most} make sense"


def _needed(life: Life) -> tuple[DeadlineKind | None, ...]:
    match life.state:
        case LifeState.STARTING:
            return (DeadlineKind.START,)
        case LifeState.STOPPING:
            return (DeadlineKind.STOP,)
        case LifeState.CONDEMNED:
            return (DeadlineKind.TERMINATE, DeadlineKind.KILL)
        case _:
            return (None,)


def _looks(sup: Supervisor) -> Iterator[str]:
    """While the loop waits, somebody looks at those it waits for, if that was asked for."""
    looks = sup.plan.limits.look_s is not None
    armed = sup._deadlines.has(LOOK_KEY)
    if armed and (not looks or sup._run is Run.CLOSED):
        yield "a look is asked for, and nobody waits or wants it"
    if looks and not armed and sup._loop is Loop.WAITING and sup._run is Run.RUNNING:
        yield "the loop waits, and nobody will look at whom it waits for"
    living = {(seat.number, life.number) for seat, life in sup._seats.living()}
    yield from sup._health.stalls.unsound(living)


def _progress(sup: Supervisor) -> Iterator[str]:
    """While the loop waits, somebody is on the way to an answer."""
    if sup._loop is not Loop.WAITING or sup._run is not Run.RUNNING:
        return
    if sup._sampling is Sampling.ASKED:
        return
    alive = any(s.life is not None and s.life.state in LIVE for s in sup._seats.all)
    resting = any(s.state is SeatState.RESTING for s in sup._seats.all)
    if not alive and not resting and not sup._dying:
        yield "the loop waits, and nobody is left to bring anything"


def _bounds(sup: Supervisor) -> Iterator[str]:
    limits = sup.plan.limits
    for seat in sup._seats.all:
        if seat.failed_starts > limits.failed_starts:
            yield f"seat {seat.number} failed to start {seat.failed_starts} times"
        if seat.barren > limits.barren_lives:
            yield f"seat {seat.number} had {seat.barren} barren lives"
    window = sup._ledger.window
    # A stream that breaks off while it holds no ticket has a position of its own to say so.
    extra = sup.plan.seats if sup.plan.source is Source.STREAMS else 0
    most = sup.plan.window * sup.plan.longest_bundle + extra
    if window.count > most:
        yield f"{window.count} tickets in a window of {most}"
    if sup._bundles.tickets > sup.plan.longest_bundle:
        most_tickets = sup.plan.longest_bundle
        yield f"{sup._bundles.tickets} tickets a bundle, at most {most_tickets} make sense"
    if sum(life.state in EMPLOYED for _, life in sup._seats.living()) > sup.plan.seats:
        yield "more lives are employed than there are seats"


def _records(sup: Supervisor) -> Iterator[str]:
    """What is kept for reports does not grow with the run."""
    faults = sup.faults
    if len(faults.latest) > (most := sup.plan.limits.records.supervisor_faults):
        yield f"{len(faults.latest)} faults are kept, {most} are enough"
    if len(faults.latest) > faults.seen:
        yield f"{len(faults.latest)} faults are kept, and {faults.seen} were seen"
    losses = sup._recovery.losses
    if len(losses) > sup.plan.seats:
        yield f"{len(losses)} losses are kept for {sup.plan.seats} seats"
