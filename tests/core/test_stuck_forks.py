"""Forked lives that cannot live with what they inherited: all are made anew, nobody is blamed."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import pytest

from antifreeze._core import commands as do
from antifreeze._core import events as ev
from antifreeze._core.faults import Ending, FaultKind
from antifreeze._core.health.stall_detection import Activity, Inherited, Pulse, Sight, StackLine
from antifreeze._core.health.worker_phases import SAMPLE
from antifreeze._core.limits import Limits
from antifreeze._core.loader_plan import Plan, Source
from antifreeze._core.tickets import Errand
from antifreeze._core.worker_slots import SeatState

from .script import ASK, Script, loaded
from .test_stall_detection import Watched

LINE = (StackLine("data.py", 7, "__getitem__"),)
WAITS = Activity(stack=LINE, deadlock="1:7f00", inherited=Inherited("waits for a lock"))
MADE_ANEW = Ending(words="made anew", told=True)


def _kills(it: Watched) -> list[tuple[float, do.KillLife]]:
    return [(at, what) for at, what in it.done if isinstance(what, do.KillLife)]


def _watched(activity: Callable[[float], Activity] = lambda now: WAITS) -> Watched:
    return Watched(limits=Limits(look_s=1.0), activity=activity)


def test_a_deadlock_on_what_was_inherited_turns_sooner_than_another() -> None:
    ((at, kill),) = _kills(_watched().run(10.0))
    assert kill.unfit == "waits for a lock"
    assert at == 4.0
    other = _watched(lambda now: Activity(stack=LINE, deadlock="1:7f00"))
    ((later, kill),) = _kills(other.run(10.0))
    assert kill.unfit == "" and later > at


def test_a_clean_process_is_prepared_when_suspicion_begins_and_only_once() -> None:
    it = _watched().run(3.5)
    assert [type(what) for _, what in it.done] == [do.ExpectTurn]
    assert not any(
        isinstance(what, do.ExpectTurn)
        for _, what in _watched(lambda now: Activity()).run(9.0).done
    )


def test_no_sample_is_blamed_not_even_after_an_earlier_try_had_failed() -> None:
    it = Watched(limits=Limits(look_s=1.0), activity=lambda now: WAITS)
    sup = it.script.sup
    (ticket,) = [errand.ticket for _, _, errand in _held(it.script)]
    blamed = ticket.number
    it.script.perform(ev.LifeEnded(0, 1, Ending(signal=11), blamed))  # the first try
    it.script.ready(0, life=2)
    it._sight = lambda now: _sight(it.script)
    it.run(5.0)
    ((_, kill),) = _kills(it)
    assert kill.unfit
    (again,) = sup._ledger.pending or [errand.ticket for _, _, errand in _held(it.script)]
    assert again.position == 0 and again.blamed == ()
    assert all(fault.kind is not FaultKind.HANG for fault in sup.faults.latest)


def _held(script: Script) -> list[tuple[int, int, Errand]]:
    return [
        (seat.number, seat.life.number, errand)
        for seat in script.sup._seats.all
        if seat.life is not None
        for errand in seat.life.held.values()
    ]


def _sight(script: Script) -> Sight:
    seat, life, errand = _held(script)[0]
    return Sight(seat, life, errand.ticket.number, SAMPLE)


def test_a_life_that_needs_what_a_fork_cannot_have_turns_at_once() -> None:
    s = Script(Plan(seats=2, window=4, longest_bundle=1), batches=6).begin().ready(0, 1)
    s.perform(ASK)
    first = _held(s)[0][2].ticket
    done = s.perform(ev.ForkUnfit(0, 1, "uses an accelerator"))
    kill = next(each for each in done if isinstance(each, do.KillLife))
    assert (kill.seat, kill.unfit) == (0, "uses an accelerator")
    assert any(isinstance(each, do.StartLife) and each.seat == 0 for each in done)
    s.perform(ev.LifeEnded(1, 1, MADE_ANEW, 0))
    assert list(s.sup.faults.latest) == []
    # What it says after that counts for nothing.
    late = s.perform(ev.ParcelsArrived(0, 1, (first.number,), ev.Outcome.FAILED))
    assert do.DropParcel(first.number) in late


def test_a_life_that_is_gone_needs_nothing() -> None:
    s = Script(Plan(seats=1, window=2), batches=6).begin().ready(0)
    s.perform(ASK)
    s.perform(ev.LifeEnded(0, 1, Ending(signal=9)))
    assert s.perform(ev.ForkUnfit(0, 1, "uses an accelerator")) == []


STREAMS = Plan(seats=2, window=4, longest_bundle=1, source=Source.STREAMS, restarts=True)


def test_a_stream_of_which_nothing_was_taken_begins_anew() -> None:
    s = Script(STREAMS, batches=100).begin().ready(0, 1)
    s.perform(ASK)
    done = s.perform(ev.ForkUnfit(0, 1, "uses an accelerator"))
    assert any(isinstance(each, do.KillLife) and each.unfit for each in done)
    assert do.StartLife(0, 2, 0) in done and do.StartLife(1, 2, 0) in done
    s.perform(ev.LifeEnded(1, 1, MADE_ANEW, 0))
    assert not any(fault.kind is FaultKind.STREAM_LOST for fault in s.sup.faults.latest)


def test_a_turn_forgives_what_went_wrong_before_it() -> None:
    """A worker that was killed before its epoch began may have been killed by what it inherited."""
    s = Script(STREAMS, batches=100).begin().ready(1)
    s.perform(ASK)
    s.perform(ev.LifeEnded(0, 1, Ending(signal=11)))
    s.ready(0, life=2)
    assert s.sup._recovery.may_turn()
    done = s.perform(ev.ForkUnfit(0, 2, "uses an accelerator"))
    assert do.StartLife(0, 3, 0) in done and do.StartLife(1, 2, 0) in done
    (crash,) = s.sup.faults.latest
    assert (crash.kind, crash.life, crash.verdict) == (FaultKind.CRASH, 1, "retry")
    # It has all its attempts again.
    s.perform(ev.LifeEnded(0, 3, Ending(signal=11)))
    assert s.sup._seats.all[0].state is SeatState.OPEN


def test_a_ticket_of_a_stream_is_not_blamed_for_a_turn() -> None:
    s = Script(replace(STREAMS, resumes=True), batches=100).begin().ready(0, 1)
    s.perform(ASK)
    first = next(errand.ticket for seat, _, errand in _held(s) if seat == 0)
    s.perform(ev.LifeEnded(0, 1, Ending(signal=11), first.number))
    s.ready(0, life=2)
    again = next(errand.ticket for seat, _, errand in _held(s) if seat == 0)
    assert again.position == first.position and len(again.blamed) == 1
    s.perform(ev.ForkUnfit(0, 2, "uses an accelerator"))
    s.ready(0, life=3)
    again = next(errand.ticket for seat, _, errand in _held(s) if seat == 0)
    assert again.position == first.position and again.blamed == ()


def test_lives_that_we_end_to_make_them_anew_do_not_use_up_the_tries_of_their_seats() -> None:
    s = Script(STREAMS, batches=100).begin().ready(1)
    s.perform(ASK)
    s.perform(ev.LifeEnded(0, 1, Ending(signal=11)))
    s.perform(ev.LifeEnded(0, 2, MADE_ANEW, 0))
    assert s.sup._seats.all[0].state is SeatState.OPEN
    assert [fault.kind for fault in s.sup.faults.latest] == [FaultKind.CRASH]


def test_what_another_stream_gives_after_the_turn_counts_for_nothing() -> None:
    s = Script(STREAMS, batches=100).begin().ready(0, 1)
    s.perform(ASK)
    number = next(errand.ticket.number for seat, _, errand in _held(s) if seat == 1)
    s.perform(ev.ForkUnfit(0, 1, "uses an accelerator"))
    assert do.DropParcel(number) in s.perform(loaded(1, number))  # it was on its way
    s.perform(ev.LifeEnded(1, 1, MADE_ANEW, 0))
    assert [seat.past for seat in s.sup._seats.all] == [0, 0]
    assert not any(fault.kind is FaultKind.STREAM_LOST for fault in s.sup.faults.latest)


@pytest.mark.parametrize("resumes", [False, True])
def test_a_stream_that_has_given_something_turns_only_if_all_can_go_on(resumes: bool) -> None:
    plan = Plan(
        seats=2,
        window=4,
        longest_bundle=1,
        source=Source.STREAMS,
        restarts=True,
        resumes=resumes,
    )
    s = Script(plan, batches=100).begin().ready(0, 1)
    s.perform(ASK)
    number = next(errand.ticket.number for seat, _, errand in _held(s) if seat == 1)
    s.perform(loaded(1, number))
    done = s.perform(ev.ForkUnfit(0, 1, "uses an accelerator"))
    assert any(isinstance(each, do.KillLife) for each in done) == resumes


def test_what_is_stuck_without_proof_turns_after_a_while() -> None:
    """As a library that polls for threads that are not there."""
    lacks = Activity(
        stack=LINE, left_behind="gRPC", inherited=Inherited("waits for threads of gRPC")
    )
    it = _watched(lambda now: lacks).run(20.0)
    ((at, kill),) = _kills(it)
    assert kill.unfit and at <= 8.0
    assert [pulse for _, pulse in it.reports()] in ([], [Pulse.STUCK])


MAY_WAIT = Activity(
    stack=LINE,
    own_lock=True,
    inherited=Inherited("has waited too long for a lock", proven=False),
)


@pytest.mark.parametrize("limits", [Limits(look_s=1.0), Limits(look_s=1.0, call_s=20.0)])
def test_what_may_wait_for_a_lock_that_it_inherited_has_its_time_and_then_turns(
    limits: Limits,
) -> None:
    due = limits.call_s or limits.still_s
    assert due is not None
    it = Watched(limits=limits, activity=lambda now: MAY_WAIT).run(due + 4.0)
    ((at, kill),) = _kills(it)
    assert kill.unfit == "has waited too long for a lock"
    assert at >= due
    assert not any(isinstance(what, do.ExpectTurn) for _, what in it.done)  # it may be healthy
    assert all(fault.kind is not FaultKind.HANG for fault in it.script.sup.faults.latest)


@pytest.mark.parametrize("seen_running", [17.0, 21.0])
def test_what_polls_for_a_lock_turns_though_it_is_seen_running_now_and_then(
    seen_running: float,
) -> None:
    """On a busy machine a look meets it in the moment between two waits."""
    woken = replace(MAY_WAIT, own_lock=False, inherited=None, runs=True)
    it = Watched(
        limits=Limits(look_s=1.0, call_s=20.0),
        activity=lambda now: woken if now == seen_running else MAY_WAIT,
    ).run(24.0)
    ((at, kill),) = _kills(it)
    assert at == 21.0 and kill.unfit == "has waited too long for a lock"


def test_what_computes_between_waits_for_a_lock_does_not_turn() -> None:
    it = Watched(
        limits=Limits(look_s=1.0, call_s=20.0),
        activity=lambda now: replace(MAY_WAIT, cpu_s=min(now, 18.0)),
    )
    ((at, kill),) = _kills(it.run(24.0))
    assert at == 21.0 and kill.unfit == ""


def test_what_moves_while_it_waits_for_a_lock_does_not_turn() -> None:
    it = Watched(
        limits=Limits(look_s=1.0, call_s=20.0),
        activity=lambda now: replace(MAY_WAIT, cpu_s_of_others=now),
    )
    _, kill = _kills(it.run(60.0))[0]
    assert kill.unfit == ""
