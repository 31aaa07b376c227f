"""What a wait of the loop was for: every second of it, from what was measured where it happened.

A wait lasts from the loop's asking to the answer. The one whose parcel ends it says in its timings
when it began, fetched, collated and sealed, on the clock that all processes of a machine share; so
the wait is laid over that: (1) what the sampler took, (2) what was before the ticket was begun: its
worker was coming up, or is one that replaced another, or was busy with an earlier ticket, (3)
fetching, (4) collating, (5) packing and the way here. From the moment on when another batch was
ready and some worker had nothing to do, it was for the order's sake.
"""

from __future__ import annotations

from enum import Enum
from typing import assert_never

from .._core.batch_timings import Timings
from .._core.events import ParcelsArrived
from .._core.ticket_tracking import Arrival, Ledger
from .._core.worker_slots import Gap, Life, Seat, Seats
from .wait_totals import CAUSES, Accounts, Split, Wait, WorkAccount

LONG_S = 0.01  # a wait that is kept among the latest: who waits so long has time to note it
SHORTEST_S = 1e-9  # that a clock may tell


class Hold(Enum):
    """Why nothing moves that could."""

    NOTHING = "nothing"
    ORDER = "order"
    MEMORY = "memory"


class Waits:
    """Split the waits of one loop."""

    __slots__ = (
        "_accounts",
        "_asked_at",
        "_hold",
        "_ledger",
        "_sampler_s",
        "_seats",
        "_short_s",
        "_since",
    )

    _seats: Seats
    _ledger: Ledger

    def __init__(self, accounts: Accounts) -> None:
        self._accounts = accounts
        self._asked_at = self._since = 0.0
        self._hold = Hold.NOTHING
        self._sampler_s = 0.0
        self._short_s = 0.0  # for want of memory, until there was some

    def __repr__(self) -> str:
        return f"<Waits since {self._asked_at:.3f}, held by {self._hold.value}>"

    def attach(self, seats: Seats, ledger: Ledger) -> None:
        self._seats, self._ledger = seats, ledger

    def begin(self, now: float) -> None:
        """The loop asks."""
        self._asked_at, self._hold = now, Hold.NOTHING
        self._sampler_s = self._short_s = 0.0

    def sampled(self, seconds: float) -> None:
        """The sampler took so long, while the loop waited."""
        self._sampler_s += seconds

    def came(self, seat: Seat, life: Life, event: ParcelsArrived) -> None:
        """Note parcels, while the life still holds their tickets."""
        if event.timings is not None:
            with self._accounts.guard:  # other loops may have the same accounts
                self._note(seat, life, event, event.timings)

    def _note(self, seat: Seat, life: Life, event: ParcelsArrived, timings: Timings) -> None:
        self._accounts.note_work(timings, len(event.numbers))
        if timings.slowest_s:
            errand = life.held.get(event.numbers[0])
            if errand is not None:
                ticket = errand.ticket
                self._accounts.note_slowest(
                    timings, ticket.indices, ticket.position, worker=seat.number
                )

    def look(self, now: float, *, more: bool) -> None:
        """See whether something is held up, while the loop waits. `more`: the sampler would give
        more, if there were room."""
        hold = self._what_holds(more)
        if hold is not self._hold:
            if self._hold is Hold.MEMORY:
                self._short_s += now - self._since
            self._hold, self._since = hold, now

    def _what_holds(self, more: bool) -> Hold:
        ledger = self._ledger
        if ledger.short_of_leases and ledger.pending:
            return Hold.MEMORY
        if more and ledger.window.has_arrivals and not ledger.pending and self._seats.any_idle:
            return Hold.ORDER
        return Hold.NOTHING

    def so_far(self, now: float) -> tuple[Split, float, float]:
        """Split a wait that is not over, as far as it is nobody's who loads: the sampler's, or held
        up. Gives the time that is left as well, from when to when."""
        split = Split()
        start = self._begin(split, now)
        if self._hold is Hold.NOTHING:
            return split, start, now
        held_at = min(max(self._since, start), now)
        if self._hold is Hold.ORDER:
            split.order += now - held_at
        else:
            split.memory += now - held_at
        return split, start, held_at

    @property
    def work(self) -> WorkAccount:
        return self._accounts.work

    def _begin(self, split: Split, now: float) -> float:
        """Say what was before anybody could load; give when that was over."""
        asked_at = min(self._asked_at, now)
        drawn_at = min(asked_at + self._sampler_s, now)
        start = min(drawn_at + self._short_s, now)
        split.sampler += drawn_at - asked_at
        split.memory += start - drawn_at
        return start

    def end(self, now: float, arrival: Arrival | None, *, fault: bool) -> None:
        """The loop has its answer: a parcel, a fault, or that the epoch is over (neither)."""
        if now > self._asked_at:
            with self._accounts.guard:
                self._end(now, arrival, fault=fault)

    def _end(self, now: float, arrival: Arrival | None, *, fault: bool) -> None:
        asked_at, split = self._asked_at, self._accounts.wait
        start = self._begin(split, now)
        timings = None if arrival is None else arrival.coming.event.timings
        if arrival is None or timings is None:
            cause = "recovery" if fault else "ending" if arrival is None else "unknown"
            setattr(split, cause, getattr(split, cause) + now - start)
            return
        if now - asked_at < LONG_S:
            self._lay(split, start, now, arrival, timings)
            return
        alone = Split()
        self._lay(alone, start, now, arrival, timings)
        cause = _add(split, alone)
        position = arrival.errand.ticket.position
        self._accounts.latest.append(Wait(now - asked_at, position, cause))

    def _lay(
        self, split: Split, start: float, now: float, arrival: Arrival, timings: Timings
    ) -> None:
        """Lay the timings of a parcel over the wait that it ended."""
        sealed_at = min(timings.sealed_at, now)
        if start < sealed_at:
            held_at = sealed_at
            if self._hold is not Hold.NOTHING:
                held_at = min(max(self._since, start), sealed_at)
            begun_at = min(timings.begun_at, held_at)
            if start < begun_at:
                _before(split, start, begun_at, arrival)
                start = begun_at
            if start < held_at:
                _work(split, start, held_at, timings, alone=_is_alone(arrival, timings))
            if self._hold is Hold.ORDER:
                split.order += sealed_at - held_at
            elif self._hold is Hold.MEMORY:
                split.memory += sealed_at - held_at
            start = sealed_at
        split.transport += now - start


def _is_alone(arrival: Arrival, timings: Timings) -> bool:
    return len(arrival.coming.event.numbers) == 1 and timings.of == 1


def _before(split: Split, start: float, end: float, arrival: Arrival) -> None:
    """Say what was, in this time, before a worker began with a ticket."""
    coming = arrival.coming
    before = coming.before
    if arrival.again:
        split.recovery += end - start
    elif before is None:
        match coming.gap:
            case Gap.NONE:
                split.startup += end - start
            case Gap.LOST:
                split.recovery += end - start
            case Gap.GROWN:
                split.memory += end - start
            case _:
                assert_never(coming.gap)
    else:
        begun_at, sealed_at = max(start, before.begun_at), min(end, before.sealed_at)
        if begun_at < sealed_at:
            _work(split, begun_at, sealed_at, before, alone=False)
            split.transport += (end - start) - (sealed_at - begun_at)
        else:
            split.transport += end - start  # the ticket was on its way


def _work(split: Split, start: float, end: float, timings: Timings, *, alone: bool) -> None:
    """Say what a worker did in this time, which lies in that of its timings."""
    if not alone:  # several tickets, one after the other: each second as all of them
        span = timings.sealed_at - timings.begun_at
        share = timings.of * (end - start) / max(span, timings.of * timings.work_s, SHORTEST_S)
        split.fetched(share * timings.fetch_s, timings)
        split.collate += share * timings.collate_s
        split.transport += (end - start) - share * (timings.fetch_s + timings.collate_s)
        return
    fetched_at = timings.begun_at + timings.fetch_s
    if start < fetched_at:
        until = min(fetched_at, end)
        split.fetched(until - start, timings)
        start = until
    collated_at = fetched_at + timings.collate_s
    if start < min(collated_at, end):
        until = min(collated_at, end)
        split.collate += until - start
        start = until
    split.transport += end - start


def _add(split: Split, part: Split) -> str:
    """Add a wait to all of them; give the cause that had most of it."""
    split.add(part)
    return max(reversed(CAUSES), key=lambda cause: float(getattr(part, cause)))
