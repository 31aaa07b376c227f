"""The restart budget: how many times a worker may be restarted before the run gives up.

A worker slot whose process has ended gets another one while there is work. Processes that get
nowhere count against their slot. Progress clears the counts, and so does a new epoch:

1. `failed_starts`: processes in a row that ended before they began an epoch. At
   `Limits.failed_starts` the slot is given up.
2. `barren`: processes in a row that brought no batch. From the second on, the slot rests before
   each restart; at `Limits.barren_lives` it is given up.
3. Where the machine refuses a process, the slot is given up at once if others do the work.

A slot that is given up gets no process for the rest of the epoch. The last one ends the run.
"""

from __future__ import annotations

from .deadlines import DeadlineKind, Key
from .faults import Fault, FaultKind, FaultLog
from .limits import Limits
from .recovery import Recovery
from .worker_lifecycle import Loss, Out, WorkerLifecycle
from .worker_slots import NEVER, Seat, SeatCue, SeatState


class RestartBudget:
    """Restart workers within bounds, and give up the slots whose budget is spent."""

    __slots__ = ("_faults", "_lifecycle", "_limits", "_recovery")

    def __init__(
        self, limits: Limits, lifecycle: WorkerLifecycle, recovery: Recovery, faults: FaultLog
    ) -> None:
        self._limits, self._lifecycle = limits, lifecycle
        self._recovery, self._faults = recovery, faults

    def __repr__(self) -> str:
        limits = self._limits
        return (
            f"<RestartBudget {limits.failed_starts} failed starts, {limits.barren_lives} barren"
            f" processes, {self._lifecycle.restarts} restarts so far>"
        )

    def restart(self, seat: Seat, delivered: int, now: float, out: Out) -> Fault | None:
        """Start a process in an open slot without one, let the slot rest, or give it up.

        Return the fault that ends the run, if no slot is left.
        """
        if seat.life is not None or seat.state is not SeatState.OPEN:
            return None
        spent = self._how_spent(seat)
        if spent is not None:
            return self._give_up(seat, spent, delivered)
        if seat.barren > 1:
            self._rest(seat, now)
        else:
            self._lifecycle.start(seat, now, out)
        return None

    def count(self, loss: Loss) -> None:
        """Count a lost process against its slot if it brought nothing, and if it never began.

        A process that had to go for what it inherited counts for nothing, and clears what those
        before it counted: they had inherited the same. Nor does one count that was ended to be
        started elsewhere.
        """
        seat = loss.seat
        if loss.is_innocent:
            seat.barren = seat.failed_starts = 0
            return
        if loss.life.brought:
            seat.barren = 0
        if loss.is_told:
            return
        if not loss.life.brought:
            seat.barren += 1
        if loss.life.epoch == NEVER:
            seat.failed_starts += 1

    def renew(self, seat: Seat) -> None:
        """Forget all that counts against a slot: an epoch begins."""
        self.cancel_rest(seat)
        seat.failed_starts = seat.barren = 0

    def cancel_rest(self, seat: Seat) -> None:
        """Wait no longer for the end of a rest."""
        self._lifecycle.deadlines.clear(_rest_of(seat))

    def _how_spent(self, seat: Seat) -> FaultKind | None:
        """Return why a slot gets no further process in this epoch, or None if it gets one."""
        if seat.failed_starts and self._goes_without(seat):
            return FaultKind.REFUSED
        if seat.failed_starts >= self._limits.failed_starts:
            return FaultKind.NEVER_STARTED
        if seat.barren >= self._limits.barren_lives:
            return FaultKind.BUDGET_SPENT
        return None

    def _goes_without(self, seat: Seat) -> bool:
        """Whether the machine has no process for this slot, and others do the work."""
        refused = self._recovery.losses[seat.number].kind is FaultKind.REFUSED
        return refused and any(other.takes_tickets for other in self._lifecycle.seats.all)

    def _rest(self, seat: Seat, now: float) -> None:
        """Keep a slot empty for a while: the longer, the more of its processes brought nothing."""
        rest_s = min(self._limits.rest_max_s, self._limits.rest_s * 2 ** (seat.barren - 2))
        self._lifecycle.seats.move(seat, SeatCue.REST)
        self._lifecycle.deadlines.set(_rest_of(seat), now + rest_s)

    def _give_up(self, seat: Seat, why: FaultKind, delivered: int) -> Fault | None:
        """Lose a slot for this epoch. Return the fault that ends the run if it was the last.

        A stream that could be taken up again fails alone: the loop gets the error in its turn.
        """
        if self._recovery.resumes(seat):
            self._recovery.give_up_stream(seat, delivered)
            return None
        self._lifecycle.seats.move(seat, SeatCue.LOSE)
        fault = self._recovery.why_lost(seat).as_fault(why, None, delivered)
        self._faults.note(fault)
        return None if self._lifecycle.seats.loadable else fault


def _rest_of(seat: Seat) -> Key:
    return DeadlineKind.REST, seat.number, -1
