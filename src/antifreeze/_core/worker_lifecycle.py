"""The lives: how they begin, how they are asked to leave, and what follows if they do not."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

from . import commands as do
from .deadlines import DeadlineKind, Deadlines, Key
from .events import LifeEnded
from .faults import Ending, Fault, FaultKind
from .frozen_values import message
from .health.stall_detection import Pulse, Stall
from .limits import Limits
from .slab_leases import LeaseTable
from .tickets import Ticket
from .worker_slots import AT_WORK, EMPLOYED, Gap, Life, LifeCue, LifeState, Seat, Seats, SeatState

LIFE_DEADLINES = (
    DeadlineKind.START,
    DeadlineKind.SILENT,
    DeadlineKind.STOP,
    DeadlineKind.TERMINATE,
    DeadlineKind.KILL,
)

Out = list[do.Command]


@message
class Loss:
    """A life that will bring nothing more, and the tickets it held, oldest first."""

    seat: Seat
    life: Life
    was: LifeState
    tickets: tuple[Ticket, ...]
    suspect: Ticket | None  # the one it worked on; None if on something older than all of these
    kind: FaultKind
    ending: Ending | None
    seconds: float  # it had worked on the oldest ticket
    stall: Stall | None = None
    is_innocent: bool = False  # what it worked on is not to blame, nor was it in earlier tries

    @property
    def says_how(self) -> bool:
        return self.stall is not None or self.ending not in (None, Ending())

    @property
    def did_nothing(self) -> bool:
        """Whether it was to be made anew before it had done anything."""
        return self.is_told and not self.life.brought

    @property
    def is_told(self) -> bool:
        """Whether we ended the life ourselves, and have said why."""
        return self.ending is not None and self.ending.told

    def as_fault(self, kind: FaultKind, ticket: Ticket | None, delivered: int) -> Fault:
        """Say what this loss means for a ticket, or for the run."""
        return Fault(
            kind=kind,
            seat=self.seat.number,
            life=self.life.number,
            ticket=ticket,
            ending=self.ending,
            delivered=delivered,
            seconds=self.seconds if kind is FaultKind.HANG else 0.0,
            stall=self.stall,
        )


class WorkerLifecycle:
    """Everyone who works, and the deadlines that bind them. Decides about lives, not tickets."""

    def __init__(self, seats: int, limits: Limits, leases_a_life: int) -> None:
        self.seats = Seats(seats)
        self.deadlines = Deadlines()
        self.dying: dict[tuple[int, int], Life] = {}  # replaced before they were gone
        self.epoch = 0
        self.restarts = 0
        # The latest life that left work undone, and whether it lives; how many there were.
        self.lost: tuple[int, int, bool] | None = None
        self.losses = 0
        self._limits = limits
        self._leases_a_life = leases_a_life

    def start(self, seat: Seat, now: float, out: Out) -> None:
        if seat.lives:
            self.restarts += 1
        seat.lives += 1
        seat.life = Life(seat.lives, LeaseTable(self._leases_a_life))
        self._set(DeadlineKind.START, seat, seat.life, now + self._limits.start_s)
        past, before = seat.past, seat.before
        out.append(do.StartLife(seat.number, seat.lives, self.epoch, past, before, heir=seat.begun))

    def begin_epoch(self, seat: Seat, now: float, out: Out) -> None:
        """Begin the epoch in one seat: with the life that is there, or a new one."""
        life = seat.life
        if life is None:
            self.start(seat, now, out)
        elif life.state in EMPLOYED:
            life.last = None
            out.append(do.BeginEpoch(seat.number, life.number, self.epoch))
        elif life.state is LifeState.RETIRING:
            self.stop(seat, now, out)

    def ready(self, seat: Seat, life: Life, now: float) -> None:
        life.move(LifeCue.READY)
        self._clear(DeadlineKind.START, seat, life)
        if life.state is LifeState.SERVING:
            self.begin_work(life, now)

    def silent(self, seat: Seat, life: Life, now: float) -> None:
        """Give a life that closed its channel a moment to end by itself."""
        if life.state in AT_WORK:
            self._set(DeadlineKind.SILENT, seat, life, now + self._limits.silent_s)

    def begin_work(self, life: Life, now: float) -> None:
        """Note that a life turns to its oldest ticket."""
        life.working_since = now

    def awaits(self, life: Life) -> bool:
        """Say whether a life should be doing something."""
        return life.state is LifeState.STARTING or (life.state in AT_WORK and life.owes)

    def stop(self, seat: Seat, now: float, out: Out) -> None:
        """Ask a life to leave; `press` gets harder if it does not."""
        life = seat.life
        if life is None or life.state not in AT_WORK:
            return
        # A seat whose stream is over has nothing left to do, whatever it still owes.
        idle = seat.state is SeatState.SPENT or not life.owes
        life.patiently = idle and life.state is not LifeState.STARTING
        stop_s = self._limits.stop_idle_s if life.patiently else self._limits.stop_s
        life.move(LifeCue.STOP)
        self._clear(DeadlineKind.START, seat, life)
        self._clear(DeadlineKind.SILENT, seat, life)
        self._set(DeadlineKind.STOP, seat, life, now + stop_s)
        out.append(do.StopLife(seat.number, life.number))

    def retire(self, seat: Seat, life: Life, now: float, out: Out) -> None:
        """Let a life go when it has brought what it holds."""
        if life.state is LifeState.SERVING:
            life.move(LifeCue.RETIRE)
            seat.gap = Gap.GROWN
        if life.state is LifeState.RETIRING and not life.owes:
            self.stop(seat, now, out)

    def let_go(self, seats: Iterable[Seat], now: float, out: Out) -> None:
        """Retire the lives of seats whose loop has left for good, as it seems."""
        for seat in seats:
            life = seat.life
            if life is not None and life.state is LifeState.SERVING:
                life.move(LifeCue.RETIRE)
            if life is not None and life.state is LifeState.RETIRING and not life.owes:
                self.stop(seat, now, out)

    def stop_all(self, now: float, out: Out) -> None:
        for seat in self.seats.all:
            self.stop(seat, now, out)

    def condemn(
        self,
        seat: Seat,
        life: Life,
        now: float,
        out: Out,
        stall: Stall | None = None,
        unfit: str = "",
    ) -> Loss:
        """End a life that keeps everyone waiting; its seat is free at once. `unfit`: what it cannot
        live with, if that is where it comes from."""
        self.note_lost(seat, life)
        loss = self._loss(seat, life, FaultKind.HANG, now, stall=stall)
        locked = stall is not None and stall.pulse is Pulse.DEADLOCKED
        life.orphan_tickets()
        self._clear(DeadlineKind.START, seat, life)
        self._clear(DeadlineKind.SILENT, seat, life)
        life.move(LifeCue.CONDEMN)
        seat.life = None
        self.dying[seat.number, life.number] = life
        self._kill(seat, life, now, out, doubted=locked and not life.brought, unfit=unfit)
        return replace(loss, is_innocent=bool(unfit))

    def press(self, key: Key, now: float, out: Out) -> None:
        """Use the next harder means against a life that does not leave."""
        kind, number, life_number = key
        seat = self.seats.all[number]
        life = self.dying.get((number, life_number), seat.life)
        if life is None or life.number != life_number:
            return
        if kind is DeadlineKind.STOP:
            if life.patiently:
                out.append(do.ReportLate(number, life_number, self._limits.stop_idle_s))
            life.move(LifeCue.CONDEMN)
            self._set(DeadlineKind.TERMINATE, seat, life, now + self._limits.terminate_s)
            out.append(do.KillLife(number, life_number, do.Force.TERMINATE))
        elif kind is DeadlineKind.TERMINATE:
            self._kill(seat, life, now, out)
        else:
            self._abandon(seat, life, out)

    def ended(self, seat: Seat, event: LifeEnded, now: float) -> Loss | None:
        """Take note of an end. Gives the loss if it was the present life of its seat."""
        dying = self.dying.pop((seat.number, event.life), None)
        if dying is not None:
            self._part(seat, dying)
            return None
        life = seat.life
        if life is None or life.number != event.life:
            return None
        kind = FaultKind.REFUSED if event.ending.refused else FaultKind.CRASH
        # Whoever had done nothing when all were made anew has left nothing undone.
        is_lost = life.brought or not event.ending.told
        if kind is FaultKind.CRASH and life.state in AT_WORK and is_lost:
            self.note_lost(seat, life)
        loss = self._loss(seat, life, kind, now, event)
        self._part(seat, life)
        seat.life = None
        return loss

    def note_lost(self, seat: Seat, life: Life, *, alive: bool = False) -> None:
        """Take note of work that was left undone: whoever did it may have kept a lock."""
        self.lost, self.losses = (seat.number, life.number, alive), self.losses + 1
        if not alive:
            seat.gap = Gap.LOST

    def _loss(
        self,
        seat: Seat,
        life: Life,
        kind: FaultKind,
        now: float,
        event: LifeEnded | None = None,
        stall: Stall | None = None,
    ) -> Loss:
        suspect: Ticket | None = None
        if life.epoch == self.epoch and life.held:  # else it was busy with something older
            number = None if event is None else event.working_on
            if stall is not None:
                number = stall.ticket
            if number != 0:
                # Without word of it: a life works on its oldest ticket.
                suspect = life.held.get(number or 0, next(iter(life.held.values()))).ticket
        return Loss(
            seat=seat,
            life=life,
            was=life.state,
            tickets=tuple(errand.ticket for errand in life.held.values()),
            suspect=suspect,
            kind=kind,
            ending=None if event is None else event.ending,
            seconds=now - life.working_since if stall is None else stall.seconds,
            stall=stall,
        )

    def _abandon(self, seat: Seat, life: Life, out: Out) -> None:
        """Go on without a life that the kernel cannot end."""
        self.dying.pop((seat.number, life.number), None)
        if seat.life is life:
            seat.life = None
        self._part(seat, life)
        out.append(do.AbandonLife(seat.number, life.number))

    def _part(self, seat: Seat, life: Life) -> None:
        life.move(LifeCue.END)
        for kind in LIFE_DEADLINES:
            self._clear(kind, seat, life)

    def _kill(
        self,
        seat: Seat,
        life: Life,
        now: float,
        out: Out,
        *,
        doubted: bool = False,
        unfit: str = "",
    ) -> None:
        self._set(DeadlineKind.KILL, seat, life, now + self._limits.kill_s)
        out.append(do.KillLife(seat.number, life.number, do.Force.KILL, doubted, unfit))

    def _set(self, kind: DeadlineKind, seat: Seat, life: Life, at: float) -> None:
        self.deadlines.set((kind, seat.number, life.number), at)

    def _clear(self, kind: DeadlineKind, seat: Seat, life: Life) -> None:
        self.deadlines.clear((kind, seat.number, life.number))
