"""The supervisor's state for outside eyes: frozen, complete, cheap to take."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ..faults import Fault
from ..frozen_values import frozen
from ..health.stall_detection import CallSnapshot
from ..limits import LIMITS
from ..states import Loop, Run
from ..tickets import Progress
from ..worker_slots import LifeState, Seat, SeatState

if TYPE_CHECKING:
    from ..supervisor import Supervisor


@frozen
class SeatSnapshot:
    seat: int
    state: SeatState
    life: int | None
    life_state: LifeState | None
    lives: int
    undelivered: int
    working_on: tuple[int, ...]  # positions given to the present life, oldest first
    brought: int  # parcels of the present life


@frozen
class SupervisorSnapshot:
    run: Run
    loop: Loop
    progress: Progress
    in_window: int
    window: int
    pending: int
    restarts: int
    seats: tuple[SeatSnapshot, ...]
    calls: tuple[CallSnapshot, ...]  # that lives were in when somebody looked
    faults: tuple[Fault, ...]  # the last ones
    faults_seen: int


def snapshot_seat(seat: Seat) -> SeatSnapshot:
    life = seat.life
    return SeatSnapshot(
        seat=seat.number,
        state=seat.state,
        life=None if life is None else life.number,
        life_state=None if life is None else life.state,
        lives=seat.lives,
        undelivered=seat.undelivered,
        working_on=() if life is None else tuple(e.ticket.position for e in life.held.values()),
        brought=0 if life is None else life.brought,
    )


def snapshot_supervisor(sup: Supervisor) -> SupervisorSnapshot:
    return SupervisorSnapshot(
        run=sup._run,
        loop=sup._loop,
        progress=sup.progress,
        in_window=sup._ledger.window.count,
        window=sup.plan.window,
        pending=len(sup._ledger.pending),
        restarts=sup._lifecycle.restarts,
        seats=tuple(snapshot_seat(seat) for seat in sup._seats.all),
        calls=sup._health.stalls.snapshot(),
        faults=tuple(sup.faults.latest),
        faults_seen=sup.faults.seen,
    )


def snapshot_in_passing(sup: Supervisor) -> SupervisorSnapshot:
    """Take a snapshot in another thread than the supervisor's."""
    for _ in range(LIMITS.records.snapshot_tries):
        try:
            return sup.snapshot()
        except RuntimeError:  # a collection changed while it was copied
            continue
    return sup.snapshot()
