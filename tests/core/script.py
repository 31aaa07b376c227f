"""A script of events and the commands they must lead to, exactly; and short words for both."""

from __future__ import annotations

from collections import deque
from dataclasses import replace
from itertools import islice

from antifreeze._core import commands as do
from antifreeze._core import events as ev
from antifreeze._core.faults import Ending
from antifreeze._core.health.worker_phases import OURS
from antifreeze._core.limits import LIMITS
from antifreeze._core.loader_plan import Plan
from antifreeze._core.slab_leases import Lease
from antifreeze._core.supervisor import Supervisor
from antifreeze._core.tickets import Errand, Ticket
from antifreeze._reporting.wait_causes import Waits
from antifreeze._reporting.wait_totals import Accounts

DRAW = do.DrawTickets(1)
FINISH = do.FinishEpoch()
ASK = ev.LoopAsked()
RING = ev.ClockRang()
CLOSE = ev.CloseAsked()
KILLED = Ending(signal=9)
LEFT = Ending(exit_code=0)
FORK = ev.ProgramForked()
SEED = 7


class AnyLease(Lease):
    """Stands for whatever room a ticket was given, where a script does not care."""

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Lease)

    __hash__ = None


ANY_LEASE = AnyLease(-1, -1)


def with_whole_log(plan: Plan, entries: int | None = None) -> Plan:
    """Return a plan whose supervisor keeps all events, or so many."""
    records = replace(plan.limits.records, event_log_entries=entries)
    return replace(plan, limits=replace(plan.limits, records=records))


class Script:
    """Feed events to one supervisor; compare what it commands; check it after every event.

    With `batches`, a sampler answers `DrawTickets` at once, as a driver does: `[0]`, `[1]`, ... and
    then its end. The draws are then left out of what is compared, and what they lead to is in.
    """

    def __init__(self, plan: Plan, batches: int | None = None) -> None:
        self.waits = Waits(Accounts())
        self.sup = Supervisor(with_whole_log(plan), waits=self.waits)
        self.now = 0.0
        self.refill(batches)

    def refill(self, batches: int | None) -> None:
        """Put a new sampler in place, for the next epoch."""
        self._sampler = None if batches is None else iter(range(batches))

    def at(self, now: float) -> Script:
        assert now >= self.now
        self.now = now
        return self

    def tell(self, event: ev.Event, *expected: do.Command) -> None:
        assert self.perform(event) == list(expected), f"at {self.now}: {event}"

    def perform(self, event: ev.Event) -> list[do.Command]:
        """Tell an event and give what was commanded, whatever it is."""
        told = deque([event])
        commands: list[do.Command] = []
        while told:
            for command in self.sup.handle(told.popleft(), self.now):
                if isinstance(command, do.DrawTickets) and self._sampler is not None:
                    told.append(self._draw(command.count))
                else:
                    commands.append(command)
            assert list(self.sup.check()) == []
        return commands

    def _draw(self, count: int) -> ev.Event:
        assert self._sampler is not None
        places = list(islice(self._sampler, count))
        return drawn(*places) if places else ev.SamplerEnded()

    def taught(self, bundle: int) -> Script:
        """Let the pace be as an earlier epoch of tiny batches has left it."""
        self.sup._bundles._each_s = LIMITS.bundles.load_s / bundle
        self.sup._bundles.tickets = bundle
        return self

    def begin(self, epoch: int = 0) -> Script:
        """Begin an epoch without a look at the commands; other tests look at them."""
        self.perform(epoch_asked(epoch))
        return self

    def ready(self, *seats: int, life: int = 1) -> Script:
        """Let lives come up and begin the epoch."""
        for seat in seats:
            self.tell(ev.LifeReady(seat, life))
            self.tell(ev.EpochBegun(seat, life, self.sup.progress.epoch))
        return self

    def silent(self, seat: int, life: int = 1) -> Script:
        """Let a life close its channel: from now on it brings nothing, and does not end."""
        self.tell(ev.LifeSilent(seat, life))
        return self

    def loaded(self, seat: int, number: int, *expected: do.Command, life: int = 1) -> None:
        self.tell(loaded(seat, number, life=life), *expected)

    def ended(self, seat: int, number: int, *expected: do.Command, life: int = 1) -> None:
        """Tell that a stream ended. The parcel that says so is dropped; a test of its own looks."""
        commands = self.perform(ended(seat, number, life=life))
        assert [c for c in commands if c != drop(number)] == list(expected), f"at {self.now}"

    def dies(
        self,
        seat: int,
        *expected: do.Command,
        life: int = 1,
        ending: Ending = KILLED,
        on: int | None = None,
    ) -> None:
        """Tell of an end; `on` is the ticket that the life left word of."""
        self.tell(ev.LifeEnded(seat, life, ending, on), *expected)


def drawn(*places: int) -> ev.TicketsDrawn:
    return ev.TicketsDrawn(tuple([place] for place in places))


def loaded(
    seat: int, *numbers: int, life: int = 1, work_s: float | None = None
) -> ev.ParcelsArrived:
    return ev.ParcelsArrived(seat, life, numbers, ev.Outcome.LOADED, work_s)


def in_slab(
    seat: int, *numbers: int, life: int = 1, work_s: float | None = None, each: int = 4096
) -> ev.ParcelsArrived:
    """Tell of batches in slabs, each with so many bytes."""
    size = each * len(numbers)
    return ev.ParcelsArrived(seat, life, numbers, ev.Outcome.LOADED, work_s, True, size)


def failed(seat: int, number: int, *, life: int = 1) -> ev.ParcelsArrived:
    return ev.ParcelsArrived(seat, life, (number,), ev.Outcome.FAILED)


def ended(seat: int, number: int, *, life: int = 1) -> ev.ParcelsArrived:
    return ev.ParcelsArrived(seat, life, (number,), ev.Outcome.ENDED)


def returned(
    seat: int, slot: int, generation: int = 1, *, life: int = 1, also: tuple[int, ...] = ()
) -> ev.LeasesReturned:
    """Give back a slot, and others of the same life and generation."""
    return ev.LeasesReturned(tuple((seat, life, each, generation) for each in (slot, *also)))


def epoch_asked(epoch: int = 0) -> ev.EpochAsked:
    return ev.EpochAsked(epoch, SEED)


def ticket(
    number: int, position: int, *, attempt: int = 1, epoch: int = 0, drawn: int | None = None
) -> Ticket:
    """Give a ticket; `drawn` is the sampler's count where it is not the position."""
    indices = [position if drawn is None else drawn]
    return Ticket(number, epoch, position, indices, (OURS,) * (attempt - 1))


def start(seat: int, life: int = 1, epoch: int = 0) -> do.StartLife:
    return do.StartLife(seat, life, epoch)


def begin_epoch(seat: int, epoch: int, life: int = 1) -> do.BeginEpoch:
    return do.BeginEpoch(seat, life, epoch)


def send(
    seat: int,
    *tickets: Ticket,
    life: int = 1,
    slot: int | None = None,
    generation: int = 1,
    renewed: bool = False,
) -> do.SendTickets:
    """Give a bundle, or a single ticket; `slot` and what follows is for a single one."""
    lease = ANY_LEASE if slot is None else Lease(slot, generation, renewed)
    assert slot is None or len(tickets) == 1
    return do.SendTickets(seat, life, tuple(Errand(what, lease, seat, life) for what in tickets))


def draw(count: int) -> do.DrawTickets:
    return do.DrawTickets(count)


def stop(seat: int, life: int = 1) -> do.StopLife:
    return do.StopLife(seat, life)


def terminate(seat: int, life: int = 1) -> do.KillLife:
    return do.KillLife(seat, life, do.Force.TERMINATE)


def late(seat: int, seconds: float, life: int = 1) -> do.ReportLate:
    return do.ReportLate(seat, life, seconds)


def kill(seat: int, life: int = 1) -> do.KillLife:
    return do.KillLife(seat, life, do.Force.KILL)


def abandon(seat: int, life: int = 1) -> do.AbandonLife:
    return do.AbandonLife(seat, life)


class DeliverNumbers(do.Deliver):
    """Stands for the delivery of tickets with these numbers, where a script names no more."""

    def __init__(self, numbers: tuple[int, ...], copied: bool) -> None:
        super().__init__((), copied)
        self._numbers = numbers

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, do.Deliver):
            return NotImplemented
        return (self._numbers, self.copied) == (other.numbers, other.copied)

    __hash__ = None

    def __repr__(self) -> str:
        return f"Deliver(numbers={self._numbers}, copied={self.copied})"


def deliver(*numbers: int, copied: bool = False) -> do.Deliver:
    return DeliverNumbers(numbers, copied)


def drop(number: int) -> do.DropParcel:
    return do.DropParcel(number)
