"""What an epoch must come to: books that are kept beside the supervisor, by content.

1. Every place of the sampler is delivered once or raised once; in the sampler's order if that was
   asked for.
2. Every stream that was not lost is delivered whole; of a lost one, all that had arrived, and
   then, once, that it was lost. None is lost where all lives are made anew.
3. No slab is filled again while the loop, or a process forked from it, may look at it.
4. No sample is blamed that no life was lost with; no life is ended without a reason.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass

from antifreeze._core import commands as do
from antifreeze._core.events import Outcome
from antifreeze._core.faults import Fault, FaultKind
from antifreeze._core.health.worker_phases import SAMPLE
from antifreeze._core.loader_plan import Plan, Source
from antifreeze._core.reorder import Order
from antifreeze._core.slab_leases import LeaseKey
from antifreeze._core.tickets import Errand, Ticket

from .lives import Worker

BATCH = 4  # samples
BREAKING = frozenset({FaultKind.NEVER_STARTED, FaultKind.BUDGET_SPENT, FaultKind.REFUSED})


class Broken(AssertionError):
    """The supervisor broke a promise."""


def expect(is_so: bool, words: str) -> None:
    if not is_so:
        raise Broken(words)


@dataclass(slots=True)
class Sent:
    """A ticket on its way, and the memory its parcel may use."""

    worker: Worker
    errand: Errand
    cell: list[int]  # the number of whoever has written there


def place_of(ticket: Ticket) -> int:
    """Give the sampler's count of a ticket."""
    place: int = ticket.indices[0] // BATCH
    return place


class Books:
    """The books of one loader; `open` begins an epoch."""

    def __init__(self, plan: Plan) -> None:
        self._plan = plan
        self._streams = plan.source is Source.STREAMS
        self._strict = plan.order is Order.STRICT
        self._cells: dict[tuple[int, int, int], list[int]] = {}  # memory, by seat, life and slot
        self.sent: dict[int, Sent] = {}  # by ticket number
        self.parcels: dict[int, tuple[Outcome, bool]] = {}  # the driver has; by number
        self.kept: dict[LeaseKey, tuple[list[int], int]] = {}  # the loop looks at it
        self.returned: list[LeaseKey] = []
        self._forked: list[tuple[list[int], int]] = []
        self.open(0, 0)

    def open(self, epoch: int, stream_length: int) -> None:
        self.epoch = epoch
        self._stream_length = stream_length
        self.drawn = 0  # places
        self.sampler_failed = 0
        self.sampler_raised = 0
        self.got: dict[int, str] = {}  # by place
        self._last = -1  # position
        self._positions: set[int] = set()
        self._told: set[int] = set()
        self.items: dict[int, int] = {}  # of streams: by ticket number, the count in its stream
        self._stream_told: Counter[int] = Counter()  # by seat: items that must be delivered
        self._stream_got: dict[int, list[int]] = {}
        self.ended: set[int] = set()  # streams
        self.lost: set[int] = set()
        self.in_doubt: set[int] = set()  # its life was lost; another may go on with it
        self._lost_raised: Counter[int] = Counter()
        self.hits: set[tuple[int, int]] = set()  # place, sample: a life was lost there
        self.losses: Counter[int] = Counter()  # by place: lives lost that held it
        self.lives_lost: Counter[int] = Counter()  # by seat
        self.broken_by: Fault | None = None

    # ---- what happens -----------------------------------------------------------------------

    def send(self, worker: Worker, errand: Errand) -> None:
        ticket, lease = errand.ticket, errand.lease
        if ticket.number in self.sent or not worker.counts:
            raise Broken(f"{ticket} goes to {worker}: its number is used, or it is leaving")
        place = worker.seat, worker.life, lease.slot
        cell = self._cells.get(place)
        if cell is None or lease.renewed:
            cell = self._cells[place] = [0]
        self.sent[ticket.number] = Sent(worker, errand, cell)
        if not self._streams and place_of(ticket) in self.got:
            raise Broken(f"{ticket} is loaded, and the loop has it")

    def arrive(self, worker: Worker, numbers: tuple[int, ...], outcome: Outcome, slab: bool) -> int:
        """Take note of parcels that are being told. Gives how many came for the first time."""
        fresh = 0
        for number in numbers:
            self.parcels.setdefault(number, (outcome, slab))
            sent = self.sent.get(number)
            if number in self._told or sent is None or sent.worker is not worker:
                continue
            if not worker.counts or sent.errand.ticket.epoch != self.epoch:
                continue
            self._told.add(number)
            fresh += 1
            if outcome is Outcome.ENDED:
                self.ended.add(worker.seat)
            elif self._streams:
                self._stream_told[worker.seat] += 1
        return fresh

    def lose(self, worker: Worker) -> None:
        """Take note of a life that brings nothing more, while the epoch runs."""
        self.lives_lost[worker.seat] += 1
        for errand in worker.held():
            if errand.ticket.epoch == self.epoch:
                self.losses[place_of(errand.ticket)] += 1
        if self._streams and worker.seat not in self.ended:
            unbegun = worker.began != self.epoch and not self._stream_told[worker.seat]
            may_go_on = self._plan.resumes or (self._plan.restarts and unbegun)
            (self.in_doubt if may_go_on else self.lost).add(worker.seat)

    def go_on(self, worker: Worker) -> None:
        """Take note that a life is started: it goes on with the stream of its seat."""
        expect(worker.seat not in self.lost, f"{worker} begins, and its stream is lost")
        self.in_doubt.discard(worker.seat)

    def blame(self, ticket: Ticket, step: int) -> None:
        """Take note of the sample that a life was lost with."""
        self.hits.add((place_of(ticket), step - SAMPLE))

    def fork(self) -> None:
        self._forked.extend(self.kept.values())

    def give_back(self, key: LeaseKey) -> None:
        cell, number = self.kept.pop(key)
        expect(
            cell[0] == number, f"batch {number} was overwritten by {cell[0]} in the loop's hands"
        )
        self.returned.append(key)

    # ---- what the loop gets -----------------------------------------------------------------

    def deliver(self, command: do.Deliver) -> None:
        for number in command.numbers:
            if number not in self.parcels:
                raise Broken(f"{command}: there is no such parcel")
            outcome, slab = self.parcels.pop(number)
            sent = self.sent[number]
            self._receive(sent.errand.ticket, "raised" if outcome is Outcome.FAILED else "given")
            if self._streams:
                got = self._stream_got.setdefault(sent.worker.seat, [])
                got.append(self.items[number])
            if not slab:
                continue
            if sent.cell[0] != number:
                raise Broken("a batch was overwritten before its delivery")
            if not command.copied:
                lease = sent.errand.lease
                key = LeaseKey(*sent.worker.key, lease.slot, lease.generation)
                expect(key not in self.kept, "a slab is given to the loop twice")
                self.kept[key] = (sent.cell, number)
                expect(len(self.kept) <= self._plan.kept, "the loop keeps too many slabs")

    def hear(self, fault: Fault) -> bool:
        """Take note of a fault that is raised. Says whether the run is over with it."""
        ticket = fault.ticket
        if fault.kind in BREAKING:
            expect(len(self.lives_lost) == self._plan.seats, "broken, and there are seats left")
            self.broken_by = fault
            return True
        if fault.kind is FaultKind.TIMEOUT:
            expect(self._plan.timeout_s > 0, "a timeout that nobody asked for")
        elif fault.kind is FaultKind.SAMPLER:
            self.sampler_raised += 1
        elif fault.kind is FaultKind.STREAM_LOST:
            assert fault.seat is not None
            self._lost_raised[fault.seat] += 1
            if ticket is not None:
                self._position(ticket)
        else:
            assert ticket is not None
            self._receive(ticket, "raised")
            limits = self._plan.limits
            if self.losses[place_of(ticket)] < limits.attempts:
                raise Broken(f"{fault}: it is innocent")
        return False

    def _receive(self, ticket: Ticket, what: str) -> None:
        self._position(ticket)
        place = place_of(ticket)
        if not self._streams:
            if place in self.got:
                raise Broken(f"place {place} came twice: {ticket}")
            for sample in set(ticket.spared):
                expect((place, sample) in self.hits, f"{ticket}: sample {sample} is innocent")
            if ticket.spared and not self._plan.spares:
                raise Broken(f"{ticket}: nobody asked for that")
        self.got[place] = what

    def _position(self, ticket: Ticket) -> None:
        position = ticket.position
        if position in self._positions or ticket.epoch != self.epoch:
            raise Broken(f"position {position} came twice, or is of another epoch: {ticket}")
        self._positions.add(position)
        if self._strict and position <= self._last:
            raise Broken(f"position {position} came after {self._last}")
        self._last = position

    # ---- the end of an epoch ----------------------------------------------------------------

    def close_epoch(self, *, whole: bool) -> None:
        """Settle: `whole` if the loop was told that this is the end, and nothing broke."""
        for cell, number in (*self._forked, *self.kept.values()):
            expect(cell[0] == number, f"batch {number} was overwritten by {cell[0]}")
        if not whole:
            return
        expect(self.sampler_raised == self.sampler_failed, "an error of the sampler is lost")
        if not self._streams:
            missing = set(range(self.drawn)) - self.got.keys()
            expect(not missing, f"never came: places {sorted(missing)}")
            return
        for seat in range(self._plan.seats):
            got = self._stream_got.get(seat, [])
            ordered = got if self._strict else sorted(got)
            expect(ordered == list(range(len(got))), f"stream {seat} has gaps: {got}")
            told = self._stream_told[seat]
            expect(len(got) == told, f"stream {seat}: {told} came, {len(got)} were given")
            lost = seat in self.lost or (seat in self.in_doubt and self._lost_raised[seat] > 0)
            expect(lost or told == self._stream_length, f"stream {seat} is not whole: {told}")
            expect(self._lost_raised[seat] == lost, f"stream {seat}: lost {lost}, told otherwise")
