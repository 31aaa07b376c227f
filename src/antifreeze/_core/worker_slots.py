"""Seats, the lives in them, and who gets the next ticket.

A seat is a numbered place for a worker and stays for the whole run. A life is one worker in it.
Both move by the tables below and in no other way.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import field
from enum import Enum

from .batch_timings import Timings
from .frozen_values import record
from .limits import LIMITS
from .slab_leases import Lease, LeaseTable
from .states import State
from .tickets import Errand, Ticket


class LifeState(State):
    STARTING = "starting"
    SERVING = "serving"
    RETIRING = "retiring"  # brings what it holds and gets no more
    STOPPING = "stopping"  # asked to leave
    CONDEMNED = "condemned"  # being ended by force
    GONE = "gone"


class LifeCue(State):
    READY = "ready"
    RETIRE = "retire"
    STOP = "stop"
    CONDEMN = "condemn"
    END = "end"


LIFE_TRANSITIONS: dict[tuple[LifeState, LifeCue], LifeState] = {
    (LifeState.STARTING, LifeCue.READY): LifeState.SERVING,
    (LifeState.STARTING, LifeCue.STOP): LifeState.STOPPING,
    (LifeState.STARTING, LifeCue.CONDEMN): LifeState.CONDEMNED,
    (LifeState.STARTING, LifeCue.END): LifeState.GONE,
    (LifeState.SERVING, LifeCue.RETIRE): LifeState.RETIRING,
    (LifeState.SERVING, LifeCue.STOP): LifeState.STOPPING,
    (LifeState.SERVING, LifeCue.CONDEMN): LifeState.CONDEMNED,
    (LifeState.SERVING, LifeCue.END): LifeState.GONE,
    (LifeState.RETIRING, LifeCue.READY): LifeState.RETIRING,
    (LifeState.RETIRING, LifeCue.STOP): LifeState.STOPPING,
    (LifeState.RETIRING, LifeCue.CONDEMN): LifeState.CONDEMNED,
    (LifeState.RETIRING, LifeCue.END): LifeState.GONE,
    (LifeState.STOPPING, LifeCue.READY): LifeState.STOPPING,  # the two crossed on their way
    (LifeState.STOPPING, LifeCue.CONDEMN): LifeState.CONDEMNED,
    (LifeState.STOPPING, LifeCue.END): LifeState.GONE,
    (LifeState.CONDEMNED, LifeCue.READY): LifeState.CONDEMNED,
    (LifeState.CONDEMNED, LifeCue.END): LifeState.GONE,
}


class SeatState(State):
    OPEN = "open"  # may be given tickets while a life serves in it
    RESTING = "resting"  # waits out a back-off before its next life
    SPENT = "spent"  # its stream has ended in this epoch
    LOST = "lost"  # gets no further life in this epoch
    CLOSED = "closed"


class SeatCue(State):
    REST = "rest"
    REOPEN = "reopen"
    SPEND = "spend"
    LOSE = "lose"
    RENEW = "renew"  # a new epoch
    CLOSE = "close"


SEAT_TRANSITIONS: dict[tuple[SeatState, SeatCue], SeatState] = {
    (SeatState.OPEN, SeatCue.REST): SeatState.RESTING,
    (SeatState.OPEN, SeatCue.SPEND): SeatState.SPENT,
    (SeatState.OPEN, SeatCue.LOSE): SeatState.LOST,
    (SeatState.OPEN, SeatCue.RENEW): SeatState.OPEN,
    (SeatState.OPEN, SeatCue.CLOSE): SeatState.CLOSED,
    (SeatState.RESTING, SeatCue.REOPEN): SeatState.OPEN,
    (SeatState.RESTING, SeatCue.RENEW): SeatState.OPEN,
    (SeatState.RESTING, SeatCue.CLOSE): SeatState.CLOSED,
    (SeatState.SPENT, SeatCue.RENEW): SeatState.OPEN,
    (SeatState.SPENT, SeatCue.CLOSE): SeatState.CLOSED,
    (SeatState.LOST, SeatCue.RENEW): SeatState.OPEN,
    (SeatState.LOST, SeatCue.CLOSE): SeatState.CLOSED,
}

NEVER = -1  # epochs are counted from 0
MAY_LOAD = frozenset({SeatState.OPEN, SeatState.RESTING})
EMPLOYED = frozenset({LifeState.STARTING, LifeState.SERVING})  # may be given tickets
AT_WORK = EMPLOYED | {LifeState.RETIRING}  # are counted on for the tickets they hold
LIVE = AT_WORK | {LifeState.STOPPING, LifeState.CONDEMNED}


class Gap(Enum):
    """Why a seat has had a life before, in this epoch."""

    NONE = "none"  # it had not
    LOST = "lost"
    GROWN = "grown"  # it held too much memory


@record
class Life:
    """One worker in a seat, and the tickets it has been given, oldest first."""

    number: int
    leases: LeaseTable  # of its memory
    epoch: int = NEVER  # the latest it has begun
    state: LifeState = LifeState.STARTING
    held: dict[int, Errand] = field(default_factory=dict)  # by ticket number
    # Tickets that no longer count but are still with the life, by number.
    orphans: dict[int, Errand] = field(default_factory=dict)
    brought: int = 0  # parcels
    working_since: float = 0.0  # when it turned to its oldest ticket
    patiently: bool = False  # it was told to leave: it had nothing to do
    last: Timings | None = None  # of what it brought last, in this epoch

    @property
    def owes(self) -> bool:
        """Say whether it has tickets, of whatever epoch."""
        return bool(self.held or self.orphans)

    def move(self, cue: LifeCue) -> None:
        self.state = LIFE_TRANSITIONS[self.state, cue]

    def lent(self) -> list[Lease]:
        return [errand.lease for errand in (*self.held.values(), *self.orphans.values())]

    def tickets(self) -> tuple[Ticket, ...]:
        """Return every ticket that is still with it, of whatever epoch."""
        return tuple(errand.ticket for errand in (*self.held.values(), *self.orphans.values()))

    def orphan_tickets(self) -> None:
        """Stop counting on what it holds; the room stays its own until it lets go."""
        self.orphans.update(self.held)
        self.held.clear()  # its deadline goes on: others may wait for the room

    def let_go(self, number: int) -> None:
        """Free the lease of a ticket that no longer counts, if it is still out."""
        errand = self.orphans.pop(number, None)
        if errand is not None:
            self.leases.free(errand.lease)


@record
class Seat:
    """A numbered place for a worker."""

    number: int
    state: SeatState = SeatState.OPEN
    life: Life | None = None
    lives: int = 0  # ever started
    begun: int = 0  # of these, that have begun an epoch; counted where draws are torch's
    undelivered: int = 0  # tickets given to this seat that the loop has not received
    past: int = 0  # batches that have arrived from it in this epoch
    before: tuple[int, ...] = ()  # batches of its stream it was asked for in epochs before
    ends: list[Ticket] = field(default_factory=list)  # at which its stream was over, in turn
    can_resume: bool | None = None  # its stream, as it said last; None: it has not
    failed_starts: int = 0  # in a row
    barren: int = 0  # lives in a row that brought nothing
    gap: Gap = Gap.NONE  # why its present life is not its first in this epoch

    def begin_epoch(self) -> None:
        """Forget what belongs to the epoch before; `leave_epoch` has noted what is of use."""
        self.past = 0
        self.ends.clear()
        self.gap = Gap.NONE

    def leave_epoch(self, pending: int) -> None:
        """Note how many batches of its stream it has brought in this epoch, or was to bring; so
        many of these wait for a life."""
        held = 0 if self.life is None else len(self.life.held)
        self.before = (self.past + held + pending, *self.before)[: LIMITS.epochs_known]

    @property
    def takes_tickets(self) -> bool:
        life = self.life
        return self.state is SeatState.OPEN and life is not None and life.state in EMPLOYED


class Seats:
    """All seats of a loader, and the rule for who is next."""

    __slots__ = ("_turn", "all", "loadable")

    def __init__(self, count: int) -> None:
        self.all = [Seat(number) for number in range(count)]
        self.loadable = count > 0  # some seat loads, or will after its rest
        self._turn = 0  # the seat to try first

    def move(self, seat: Seat, cue: SeatCue) -> None:
        seat.state = SEAT_TRANSITIONS[seat.state, cue]
        self.loadable = any(s.state in MAY_LOAD for s in self.all)

    def present(self, number: int, life: int) -> tuple[Seat, Life | None]:
        """Give a seat, and its life if it is the one that is meant."""
        seat = self.all[number]
        return seat, seat.life if seat.life is not None and seat.life.number == life else None

    def least_loaded(self) -> Seat | None:
        """Choose the seat that owes the loop least; among equals, go round.

        What counts is what the loop has not received. So in strict order with healthy workers
        this is torch's round robin, and a slow worker under `overtake` gets less.
        """
        best: Seat | None = None
        count = len(self.all)
        for step in range(count):
            seat = self.all[(self._turn + step) % count]
            if (best is None or seat.undelivered < best.undelivered) and seat.takes_tickets:
                best = seat
        if best is not None:
            self._turn = (best.number + 1) % count
        return best

    def next_in_turn(self) -> Seat | None:
        """Choose seats strictly in turn, whatever they owe.

        The order of batches from several streams is then a matter of the streams alone, never
        of who was quicker.
        """
        count = len(self.all)
        for step in range(count):
            seat = self.all[(self._turn + step) % count]
            if seat.takes_tickets:
                self._turn = (seat.number + 1) % count
                return seat
        return None

    def keep_turn(self, seat: Seat) -> None:
        """Let a seat that was chosen, and could not be given anything, be the next one again."""
        self._turn = seat.number

    @property
    def any_idle(self) -> bool:
        """Say whether some life has nothing to do."""
        return any(s.life is not None and not s.life.held and s.takes_tickets for s in self.all)

    @property
    def all_serve(self) -> bool:
        """Say whether every seat has a life that has come up."""
        return all(s.life is not None and s.life.state is LifeState.SERVING for s in self.all)

    def rewind(self) -> None:
        self._turn = 0

    def in_hand(self) -> Iterator[tuple[Seat, Life, Ticket]]:
        """Yield every ticket that a life holds."""
        for seat, life in self.living():
            for errand in life.held.values():
                yield seat, life, errand.ticket

    def living(self) -> list[tuple[Seat, Life]]:
        return [(s, s.life) for s in self.all if s.life is not None and s.life.state in LIVE]
