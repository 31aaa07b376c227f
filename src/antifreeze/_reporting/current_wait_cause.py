"""What a wait of the loop is for that is not over: as far as the state of everything tells.

`wait_causes` lays a wait over the timings of the batch that has ended it. Here there is none yet,
only who has its ticket and what that life was last seen to do. Nothing is changed: another thread
may ask.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from .._core.health.stall_detection import CallSnapshot
from .._core.health.worker_phases import (
    CLEAN,
    COLLATE,
    HAND_OVER,
    INDICES,
    INIT,
    ITER,
    OURS,
    PACK,
    SAMPLER,
)
from .._core.limits import LIMITS
from .._core.states import Loop, Sampling
from .._core.worker_slots import Gap, Life, LifeState, Seat
from .wait_totals import Split, WorkAccount

if TYPE_CHECKING:
    from .._core.supervisor import Supervisor
    from .wait_causes import Waits


_OF_STEP = {
    OURS: "transport",
    HAND_OVER: "transport",
    INDICES: "transport",
    PACK: "transport",
    COLLATE: "collate",
    SAMPLER: "sampler",
    INIT: "startup",
    ITER: "startup",
    CLEAN: "startup",
}
_OF_GAP = {Gap.NONE: "startup", Gap.LOST: "recovery", Gap.GROWN: "memory"}


def so_far(sup: Supervisor, waits: Waits, now: float, answered_at: float) -> Split:
    """Split a wait that is not over. `answered_at`: when the core was last heard, if by now it has
    answered; what was until then is split already."""
    for _ in range(LIMITS.records.snapshot_tries):
        try:
            return _so_far(sup, waits, now, answered_at)
        except RuntimeError:  # a collection has changed meanwhile
            continue
    return Split(unknown=max(0.0, now - sup._asked_at))


def in_step(step: int, seconds: float, io_share: float | None) -> Split:
    """Say what a time in one step was for. `io_share`: how much of a fetch is waiting."""
    cause = _OF_STEP.get(step)
    if cause is not None:
        return Split(**{cause: seconds})
    if io_share is None:
        return Split(unknown=seconds)
    return Split(fetch_io=seconds * io_share, fetch_cpu=seconds * (1.0 - io_share))


def usual_share(work: WorkAccount) -> float | None:
    """Say how much of all fetches so far was waiting; None if there were none."""
    return work.io_s / work.fetch_s if work.fetch_s else None


def _so_far(sup: Supervisor, waits: Waits, now: float, answered_at: float) -> Split:
    asks_sampler = sup._sampling is Sampling.ASKED
    if sup._loop is not Loop.WAITING:
        opens_s = max(0.0, now - answered_at)
        return Split(sampler=opens_s) if asks_sampler else Split(transport=opens_s)
    split, start, end = waits.so_far(now)
    if asks_sampler:
        split.sampler += end - start
    elif start < end:
        split.add(_of_ticket(sup, waits.work, start, end))
    return split


def _of_ticket(sup: Supervisor, work: WorkAccount, start: float, end: float) -> Split:
    """Say what the batch that is due is waited for. (Where others may overtake it, the oldest.)"""
    ledger = sup._ledger
    due = ledger.window.oldest_waiting()
    for seat, life, ticket in sup._seats.in_hand():
        if ticket.position == due:
            again = ledger.is_again(ticket.number)
            return _of_life(sup, work, seat, life, (start, end), again=again)
    for ticket in ledger.pending:
        if ticket.position == due and ledger.is_again(ticket.number):
            return Split(recovery=end - start)
    gaps = {seat.gap for seat in sup._seats.all}
    if due is None or not gaps or sup._seats.all_serve:
        return Split(unknown=end - start)
    return Split(**{_OF_GAP[max(gaps, key=list(_OF_GAP).index)]: end - start})


def _of_life(
    sup: Supervisor,
    work: WorkAccount,
    seat: Seat,
    life: Life,
    span: tuple[float, float],
    *,
    again: bool,
) -> Split:
    """Say what a life does that the batch is with. Before it turned to what it has, it came up, or
    the ticket was on its way."""
    start, end = span
    gap = "recovery" if again else _OF_GAP[seat.gap]
    if life.state is LifeState.STARTING or life.epoch != sup._epoch:
        return Split(**{gap: end - start})
    begun_at = min(max(start, life.working_since), end)
    before = gap if again or life.last is None else "transport"
    split = Split(**{before: begun_at - start})
    seen = next((c for c in sup._health.stalls.snapshot() if _is_of(c, seat, life)), None)
    if seen is None:  # nobody has looked: it will be at a sample
        split.add(in_step(-1, end - begun_at, usual_share(work)))
        return split
    share = usual_share(work) if seen.runs is None else 1.0 - seen.runs
    since = begun_at
    if seen.step in _OF_STEP:  # until then it did what comes before that
        since = min(max(begun_at, seen.since), end)
        split.add(in_step(-1, since - begun_at, usual_share(work)))
    split.add(in_step(seen.step, end - since, share))
    return split


def _is_of(call: CallSnapshot, seat: Seat, life: Life) -> bool:
    """Say whether it is the call of a life that works on something it still has."""
    return (call.seat, call.life) == (seat.number, life.number) and call.ticket in life.held
