"""A lock whose holder has died, on virtual time: released once, if nobody else could hold it."""

from __future__ import annotations

from antifreeze._core import commands as do
from antifreeze._core import events as ev
from antifreeze._core.health.stall_detection import Activity, Sight
from antifreeze._core.health.worker_phases import SAMPLE
from antifreeze._core.limits import Limits
from antifreeze._core.loader_plan import Plan

from .script import ASK, KILLED, Script, failed

LOCK = 0x7000
PLAN = Plan(seats=2, window=4, longest_bundle=1, limits=Limits(look_s=1.0))


def _lost_one(plan: Plan = PLAN) -> Script:
    """Two lives at work; the first of seat 1 has died."""
    s = Script(plan, batches=50).begin().ready(0, 1)
    s.perform(ASK)
    s.perform(ev.LifeEnded(1, 1, KILLED))
    s.perform(ev.LifeReady(1, 2))
    s.perform(ev.EpochBegun(1, 2, 0))
    return s


def _wait(s: Script, until: int, locks: dict[int, int]) -> list[do.ReleaseLock]:
    """Look at both seats every second; each waits for its lock and does nothing else."""
    done: list[do.Command] = []
    for now in range(1, until + 1):
        s.at(float(now))
        lives = {seat.number: seat.life for seat in s.sup._seats.all if seat.life is not None}
        sights = []
        for seat, life in lives.items():
            number = next(iter(life.held), 0)
            sights.append(Sight(seat, life.number, number, SAMPLE))
        for command in s.perform(ev.LivesSeen(tuple(sights))):
            if isinstance(command, do.ExamineLife):
                activity = Activity(shared_lock=locks.get(command.seat, 0))
                done += s.perform(ev.LifeExamined(command.seat, command.life, activity))
    return [each for each in done if isinstance(each, do.ReleaseLock)]


def test_what_all_wait_for_and_a_dead_one_may_have_held_is_released_once() -> None:
    (release,) = _wait(_lost_one(), 20, {0: LOCK, 1: LOCK})
    assert release == do.ReleaseLock(LOCK, ((0, 1), (1, 2)), 1, 1, alive=False)


def test_it_is_not_waited_for_longer_than_a_deadlock() -> None:
    assert _wait(_lost_one(), 5, {0: LOCK, 1: LOCK}) == []
    assert len(_wait(_lost_one(), 8, {0: LOCK, 1: LOCK})) == 1


def test_if_nobody_has_died_somebody_holds_it() -> None:
    s = Script(PLAN, batches=50).begin().ready(0, 1)
    s.perform(ASK)
    assert _wait(s, 20, {0: LOCK, 1: LOCK}) == []


def test_one_whose_sample_raised_may_have_kept_it() -> None:
    s = Script(PLAN, batches=50).begin().ready(0, 1)
    s.perform(ASK)
    life = s.sup._seats.all[1].life
    assert life is not None
    s.perform(failed(1, next(iter(life.held))))
    (release,) = _wait(s, 20, {0: LOCK, 1: LOCK})
    assert (release.seat, release.life, release.alive) == (1, 1, True)


def test_one_who_does_something_else_may_hold_it() -> None:
    assert _wait(_lost_one(), 20, {0: LOCK}) == []


def test_two_locks_are_two_stories() -> None:
    assert _wait(_lost_one(), 20, {0: LOCK, 1: LOCK + 64}) == []
