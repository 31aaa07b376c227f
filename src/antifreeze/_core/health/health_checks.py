"""Looking at those the loop waits for: when, at whom, and what follows."""

from __future__ import annotations

from dataclasses import replace

from .. import commands as do
from .. import events as ev
from ..deadlines import DeadlineKind, Key
from ..loader_plan import Plan, Source
from ..ticket_tracking import Ledger
from ..worker_lifecycle import Out, WorkerLifecycle
from .memory_growth import Growth, Growths
from .stall_detection import Stall, StallDetector

LOOK_KEY: Key = (DeadlineKind.LOOK, -1, -1)


class HealthChecks:
    """Ask for looks while the loop waits; report what they show. Decides nothing about tickets."""

    __slots__ = ("_ledger", "_lifecycle", "_look_s", "_may_go", "_released", "growths", "stalls")

    def __init__(self, plan: Plan, crew: WorkerLifecycle, ledger: Ledger) -> None:
        limits = plan.limits
        self._look_s, self._lifecycle, self._ledger = limits.look_s, crew, ledger
        self._may_go = plan.source is Source.INDICES
        self.stalls = StallDetector(limits)
        self.growths = Growths(limits)
        self._released: dict[int, int] = {}  # locks, and how many lives had been lost by then

    def arm(self, now: float) -> None:
        """Have a look asked for in time; called when the loop begins to wait."""
        if self._look_s is not None and not self._lifecycle.deadlines.has(LOOK_KEY):
            self._lifecycle.deadlines.set(LOOK_KEY, now + self._look_s)

    def rest(self) -> None:
        """Ask for no further look: nobody will wait any more."""
        self._lifecycle.deadlines.clear(LOOK_KEY)
        self.stalls.forget_all()

    def look(self, now: float, out: Out) -> None:
        """Ask for a look now, and for the next one in time."""
        self.arm(now)
        out.append(do.LookAround())

    def seen(self, event: ev.LivesSeen, now: float, since: float | None, out: Out) -> None:
        """Take what lives say they do. `since`: when the loop began to wait; None: it is away."""
        self.stalls.begin(now, {(sight.seat, sight.life) for sight in event.sights})
        for sight in event.sights:
            _, life = self._lifecycle.seats.present(sight.seat, sight.life)
            if life is None or not self._lifecycle.awaits(life):
                self.stalls.forget(sight.seat, sight.life)
            elif self.stalls.see(sight, now, since):
                out.append(do.ExamineLife(sight.seat, sight.life))

    def grown(self, event: ev.LivesSeen) -> list[Growth]:
        """Give the lives that have grown too much since they began."""
        present = [
            (sight, self._lifecycle.seats.present(sight.seat, sight.life)[1])
            for sight in event.sights
        ]
        seen = [(sight, life) for sight, life in present if life is not None]
        grown = self.growths.see(seen, event.room)
        return grown if self._may_go else [replace(each, goes=False) for each in grown]

    def free_lock(self, now: float, out: Out) -> None:
        """Have a lock released that everybody who works waits for, if there was one who may have
        kept it: died, or left a sample in the middle by raising. Once for each of these."""
        lost, losses = self._lifecycle.lost, self._lifecycle.losses
        if lost is None:
            return
        at_work = [
            (seat.number, life.number)
            for seat, life in self._lifecycle.seats.living()
            if self._lifecycle.awaits(life)
        ]
        locks = {self.stalls.stuck_on(*who, now) for who in at_work}
        if len(locks) != 1 or 0 in locks:
            return
        (lock,) = locks
        if self._released.get(lock, 0) < losses:
            self._released[lock] = losses
            out.append(do.ReleaseLock(lock, tuple(at_work), *lost))

    def examined(self, event: ev.LifeExamined, now: float, since: float, out: Out) -> Stall | None:
        """Report what was seen of a life, if it is time. Gives what it must be replaced for."""
        _, life = self._lifecycle.seats.present(event.seat, event.life)
        if life is None or event.activity is None:
            return None
        who = event.seat, event.life
        unwanted = bool(life.orphans) and self.stalls.ticket_of(*who) in life.orphans
        advice = self.stalls.examined(who, event.activity, now, since, unwanted=unwanted)
        if advice is None:
            return None
        if advice.report and self._ledger.is_waited_for(life.held):
            errand = life.held.get(advice.stall.ticket)
            out.append(do.ReportStall(advice.stall, None if errand is None else errand.ticket))
        if advice.suspect:
            out.append(do.ExpectTurn())
        if advice.resume:
            out.append(do.ResumeLife(*who))
        return advice.stall if advice.replace else None
