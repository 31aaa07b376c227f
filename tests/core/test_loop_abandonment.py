"""Loops that an error has ended: their workers are let go, and come back if the loop does."""

from __future__ import annotations

from collections.abc import Iterator

from antifreeze._core import commands as do
from antifreeze._core import events as ev
from antifreeze._core.faults import Ending
from antifreeze._core.limits import LIMITS
from antifreeze._core.loader_plan import Plan, Source, Tenure
from antifreeze._engine.loop_abandonment import LoopAbandonment

from .script import ASK, Script, loaded

FOR_GOOD = ev.LoopLeft(for_good=True)
LEFT = Ending(exit_code=0)


def _one_at_work(plan: Plan) -> Script:
    s = Script(plan, batches=100).begin().ready(0)
    s.perform(ASK)
    return s


def _held(s: Script) -> list[int]:
    life = s.sup._seats.all[0].life
    return [] if life is None else list(life.held)


def _bring_all(s: Script) -> None:
    while held := _held(s):  # bounded by the window: the loop asks for nothing
        s.perform(loaded(0, held[0]))


def test_an_idle_worker_leaves_and_another_comes_with_the_loop() -> None:
    s = _one_at_work(Plan(seats=1, window=2, longest_bundle=1))
    _bring_all(s)
    assert do.StopLife(0, 1) in s.perform(FOR_GOOD)
    assert s.perform(ev.LifeEnded(0, 1, LEFT)) == []  # nobody in its place
    done = s.perform(ASK)
    assert do.StartLife(0, 2, 0, past=0) in done
    assert [each for each in done if isinstance(each, do.Deliver)]  # what it had brought


def test_a_worker_that_is_busy_brings_what_it_has_first() -> None:
    s = _one_at_work(Plan(seats=1, window=2, longest_bundle=1))
    s.perform(loaded(0, _held(s)[0]))  # for the loop, which goes away with it
    assert s.perform(FOR_GOOD) == []
    done = []
    while held := _held(s):
        assert do.StopLife(0, 1) not in done
        done = s.perform(loaded(0, held[0]))
    assert do.StopLife(0, 1) in done


def test_persistent_workers_and_streams_without_a_state_stay() -> None:
    for plan in (
        Plan(seats=1, window=2, longest_bundle=1, tenure=Tenure.LOADER),
        Plan(seats=1, window=2, longest_bundle=1, source=Source.STREAMS),
    ):
        s = _one_at_work(plan)
        _bring_all(s)
        assert s.perform(FOR_GOOD) == []


def test_a_stream_with_a_state_may_go_as_well() -> None:
    s = _one_at_work(Plan(seats=1, window=1, longest_bundle=1, source=Source.STREAMS))
    s.perform(ev.StreamMarked(0, can_resume=True))
    _bring_all(s)
    assert do.StopLife(0, 1) in s.perform(FOR_GOOD)


# ---- what is seen of the loop --------------------------------------------------------------------


def test_only_a_loop_that_raised_is_gone_and_only_after_a_while() -> None:
    absence = LoopAbandonment()
    assert not absence.is_for_good(1e9)  # it has not begun
    absence.leave(0.0, raised=False)
    assert not absence.is_for_good(LIMITS.away.abandoned_s + 1)
    absence.leave(0.0, raised=True)
    assert not absence.is_for_good(LIMITS.away.abandoned_s - 1)
    assert absence.is_for_good(LIMITS.away.abandoned_s + 1)
    assert not absence.is_for_good(LIMITS.away.abandoned_s + 2)  # not asked all the time
    absence.come()
    assert not absence.is_for_good(1e9)


class Numbers:
    """Something to iterate over that can be watched by weakref."""

    def __iter__(self) -> Iterator[int]:
        return self

    def __next__(self) -> int:
        return 1


def _loop(numbers: Numbers, *, named: bool) -> None:
    kept = enumerate(numbers) if named else numbers
    for _ in kept:
        raise ValueError


def test_a_frame_that_has_ended_holds_its_iterator_and_a_running_one_does_not_count() -> None:
    import weakref

    for named in (False, True):
        numbers = Numbers()
        absence = LoopAbandonment()
        absence.iterator = weakref.ref(numbers)
        absence.leave(0.0, raised=False)
        assert not absence.is_for_good(LIMITS.away.abandoned_s)  # this frame, which runs
        try:
            _loop(numbers, named=named)
        except ValueError as error:
            kept = error
        assert absence.is_for_good(1e9)
        del kept
