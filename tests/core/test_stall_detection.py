"""Calls that last: when they are looked at, what is made of it, and when somebody is replaced."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from antifreeze._core import commands as do
from antifreeze._core import events as ev
from antifreeze._core.faults import FaultKind
from antifreeze._core.health.stall_detection import Activity, Pulse, Sight, StackLine, StallDetector
from antifreeze._core.health.worker_phases import (
    CLEAN,
    COLLATE,
    HAND_OVER,
    INIT,
    OURS,
    PACK,
    SAMPLE,
    index_at,
    is_of_user,
)
from antifreeze._core.limits import Limits
from antifreeze._core.loader_plan import Plan, Source, Tenure

from .script import ASK, CLOSE, KILLED, RING, Script

LIMITS = Limits(look_s=1.0)
LINE = (StackLine("data.py", 7, "__getitem__"),)


class Watched:
    """A script in which somebody looks once a second, and sees one life."""

    def __init__(
        self,
        limits: Limits = LIMITS,
        sight: Callable[[float], Sight] = lambda now: Sight(0, 1, 1, SAMPLE),
        activity: Callable[[float], Activity] = lambda now: Activity(),
        source: Source = Source.INDICES,
        starting: bool = False,
        tenure: Tenure = Tenure.EPOCH,
    ) -> None:
        plan = Plan(seats=1, window=1, limits=limits, source=source, tenure=tenure)
        self.script = Script(plan, batches=4).begin()
        if not starting:
            self.script.ready(0)
        self.script.perform(ASK)
        self._sight, self._activity = sight, activity
        self.done: list[tuple[float, do.Command]] = []

    def run(self, until: float) -> Watched:
        script = self.script
        while (at := script.sup.next_wakeup()) is not None and at <= until:
            at = max(at, script.now)
            todo = script.at(at).perform(RING)
            while todo:
                match todo.pop(0):
                    case do.LookAround():
                        todo += script.perform(ev.LivesSeen((self._sight(at),)))
                    case do.ExamineLife(seat=seat, life=life):
                        answer = ev.LifeExamined(seat, life, self._activity(at))
                        todo += script.perform(answer)
                    case command:
                        self.done.append((at, command))
        return self

    def reports(self) -> list[tuple[float, Pulse]]:
        told = [(at, what) for at, what in self.done if isinstance(what, do.ReportStall)]
        return [(at, what.stall.pulse) for at, what in told]

    def killed_at(self) -> list[float]:
        return [at for at, what in self.done if isinstance(what, do.KillLife)]


def test_what_is_stuck_is_reported_at_growing_intervals_and_replaced() -> None:
    it = Watched().run(400.0)
    assert it.reports() == [(6.0, Pulse.STUCK), (61.0, Pulse.STUCK), (301.0, Pulse.STUCK)]
    assert it.killed_at() == [302.0]
    (fault,) = it.script.sup.faults.latest
    assert fault.kind is FaultKind.HANG
    assert fault.seconds == 301.0
    assert fault.stall is not None and fault.stall.pulse is Pulse.STUCK
    assert fault.ticket is not None and fault.ticket.position == 0


@pytest.mark.parametrize("step", [SAMPLE, OURS])
def test_who_waits_for_a_processor_is_not_stuck(step: int) -> None:
    it = Watched(
        sight=lambda now: Sight(0, 1, 1, step), activity=lambda now: Activity(runs=True)
    ).run(400.0)
    assert {pulse for _, pulse in it.reports()} == {Pulse.RUNNING}
    assert it.killed_at() == []


def test_a_report_comes_within_ten_seconds_and_names_the_ticket() -> None:
    it = Watched(activity=lambda now: Activity(stack=LINE, waits_for="sleeping")).run(10.0)
    ((at, report),) = it.done
    assert at <= 10.0
    assert isinstance(report, do.ReportStall)
    assert report.ticket is not None and report.ticket.indices == [0]
    assert report.stall.activity.stack == LINE


def test_what_goes_on_to_another_part_of_the_code_moves_and_is_never_ended() -> None:
    def busy(now: float) -> Activity:
        part = StackLine("data.py", int(now - 2) // 3, "part")  # looks come from 2.0 on
        return Activity(cpu_s=now, stack=(StackLine("data.py", int(now) % 3, "f"), part, *LINE))

    it = Watched(activity=busy).run(2_500.0)
    assert {pulse for _, pulse in it.reports()} == {Pulse.MOVING}
    assert len(it.reports()) == 4
    assert it.killed_at() == []


@pytest.mark.parametrize("deeper", [0, 1])
def test_what_goes_round_between_the_same_lines_runs_and_is_never_ended(deeper: int) -> None:
    """A loop of some lines, or one that calls something again and again, looks the same whether it
    has an end or not."""

    def goes_round(now: float) -> Activity:
        inner = (StackLine("data.py", int(now) % 7, "f"),) * (int(now) % 2 * deeper)
        line = StackLine("data.py", 10 + int(now) % (1 if deeper else 3), "g")
        return Activity(cpu_s=now, stack=(*inner, line, *LINE))

    it = Watched(activity=goes_round).run(2_500.0)
    assert [pulse for _, pulse in it.reports()] == [Pulse.RUNNING] * 4
    assert it.killed_at() == []


def test_wake_ups_at_one_line_are_no_progress() -> None:
    """A timer that fires, an event loop's keep-alive, gRPC's poll after a fork: it wakes up, uses
    some microseconds, reads nothing, and sleeps again."""

    def wakes_up(now: float) -> Activity:
        return Activity(cpu_s=0.005 * now, wakes=int(100 * now), received=17, stack=LINE)

    it = Watched(activity=wakes_up).run(400.0)
    assert {pulse for _, pulse in it.reports()} == {Pulse.STUCK}
    assert it.killed_at() == [302.0]
    (fault,) = it.script.sup.faults.latest
    assert fault.stall is not None and fault.stall.wakes == 30_000


def test_a_timer_is_no_computation_however_far_apart_the_looks_are() -> None:
    stalls, sight = StallDetector(LIMITS), Sight(0, 1, 1, SAMPLE)
    pulses = []
    for now in range(0, 80, 8):
        stalls.begin(now, {(0, 1)})
        if stalls.see(sight, now, 0.0):
            advice = stalls.examined((0, 1), Activity(cpu_s=0.01 * now, stack=LINE), now, 0.0)
            assert advice is not None
            pulses.append(advice.stall.pulse)
    assert set(pulses) == {Pulse.STUCK}


def test_what_comes_over_the_network_is_progress() -> None:
    it = Watched(activity=lambda now: Activity(received=int(now), stack=LINE)).run(2_500.0)
    assert {pulse for _, pulse in it.reports()} == {Pulse.MOVING}
    assert it.killed_at() == []


def test_to_begin_or_to_end_to_wait_for_the_network_is_no_progress() -> None:
    """Between two waits for the same connection it was seen awake: nothing has come."""

    def between(now: float) -> Activity:
        return Activity(received=-1 if int(now) % 3 == 0 else 1000, stack=LINE)

    it = Watched(activity=between).run(400.0)
    assert {pulse for _, pulse in it.reports()} == {Pulse.STUCK}
    assert it.killed_at() == [302.0]


def test_what_reads_moves() -> None:
    it = Watched(activity=lambda now: Activity(io_bytes=int(now), stack=LINE)).run(2_500.0)
    assert {pulse for _, pulse in it.reports()} == {Pulse.MOVING}
    assert it.killed_at() == []


def test_what_spins_on_one_stack_is_ended_after_half_an_hour() -> None:
    it = Watched(activity=lambda now: Activity(cpu_s=now, stack=LINE)).run(2_000.0)
    first, *later = [pulse for _, pulse in it.reports()]
    assert first is Pulse.RUNNING  # a hot line looks the same, for a while
    assert set(later) == {Pulse.SPINNING}
    assert it.killed_at()[0] == 1802.0


def test_who_spins_without_a_processor_at_some_looks_spins_but_is_ended_for_what_it_used() -> None:
    def starved(now: float) -> Activity:  # gets one in one look of seven
        return Activity(cpu_s=now // 7, stack=LINE, runs=True)

    it = Watched(activity=starved).run(1_000.0)
    first, *later = [pulse for _, pulse in it.reports()]
    assert first is Pulse.RUNNING
    assert set(later) == {Pulse.SPINNING} and it.killed_at() == []
    never = Watched(activity=lambda now: Activity(stack=LINE, runs=True)).run(3_000.0)
    assert never.reports()[-1][1] is Pulse.SPINNING
    assert never.killed_at() == []  # a place among busy ones is all it wants


def test_who_waits_for_a_program_that_works_does_not_spin() -> None:
    it = Watched(activity=lambda now: Activity(cpu_s_of_others=now, stack=LINE)).run(2_500.0)
    assert {pulse for _, pulse in it.reports()} == {Pulse.MOVING}
    assert it.killed_at() == []


def test_processor_time_without_a_stack_is_no_proof_of_spinning() -> None:
    it = Watched(activity=lambda now: Activity(cpu_s=now)).run(2_500.0)
    assert {pulse for _, pulse in it.reports()} == {Pulse.RUNNING}
    assert it.killed_at() == []


def test_what_moved_and_then_stands_still_has_its_time_from_then_on() -> None:
    it = Watched(activity=lambda now: Activity(io_bytes=int(min(now, 100.0)))).run(500.0)
    assert it.killed_at()[0] == 400.0


def test_a_first_stack_is_no_movement() -> None:
    it = Watched(activity=lambda now: Activity(stack=LINE if now > 5 else ())).run(10.0)
    assert it.reports() == [(6.0, Pulse.STUCK)]


def test_another_sample_is_progress() -> None:
    it = Watched(sight=lambda now: Sight(0, 1, 1, SAMPLE + int(now) // 5)).run(300.0)
    assert it.done == []


def test_a_deadlock_that_comes_again_is_not_waited_for_as_long() -> None:
    locked = Activity(deadlock="a b", stack=LINE)
    it = Watched(activity=lambda now: locked)
    it.run(8.0)
    stalls = it.script.sup._health.stalls
    assert len(it.killed_at()) == 1
    stalls.see(Sight(0, 2, 1, SAMPLE), 10.0, 8.0)
    ends = []
    for now in (11.0, 12.0, 13.0):
        advice = stalls.examined((0, 2), locked, now, 8.0)
        assert advice is not None
        ends.append(advice.replace)
    assert ends == [False, False, True]


def test_a_deadlock_is_not_waited_for_and_where_it_comes_from_is_doubted() -> None:
    it = Watched(activity=lambda now: Activity(deadlock="a b", stack=LINE)).run(20.0)
    at, kill = next((at, what) for at, what in it.done if isinstance(what, do.KillLife))
    assert at <= 5.0
    assert isinstance(kill, do.KillLife) and kill.doubted


def test_a_deadlock_has_a_little_longer_where_its_stack_is_not_known_yet() -> None:
    it = Watched(activity=lambda now: Activity(deadlock="a b", stack=LINE if now > 5.5 else ()))
    assert it.run(20.0).killed_at()[0] == 6.0
    it = Watched(activity=lambda now: Activity(deadlock="a b"))
    assert it.run(20.0).killed_at()[0] == 7.0


def test_a_deadlock_of_a_life_that_has_brought_something_is_no_doubt_about_its_origin() -> None:
    it = Watched(
        sight=lambda now: Sight(0, 1, 2, SAMPLE), activity=lambda now: Activity(deadlock="a b")
    )
    it.script.perform(ev.ParcelsArrived(0, 1, (1,), ev.Outcome.LOADED))
    it.script.perform(ASK)
    kills = [what for _, what in it.run(20.0).done if isinstance(what, do.KillLife)]
    assert kills[0] == do.KillLife(0, 1, do.Force.KILL)


@pytest.mark.parametrize("seconds", [0.5, 2.0, 30.0])
def test_a_number_ends_a_call_whatever_it_does(seconds: float) -> None:
    limits = Limits(look_s=min(1.0, seconds / 10), call_s=seconds)
    it = Watched(limits, activity=lambda now: Activity(cpu_s=now, io_bytes=int(1000 * now)))
    assert it.run(40.0).killed_at()[0] <= seconds + 2 * min(1.0, seconds / 10)


def test_none_ends_nothing_but_reports() -> None:
    limits = Limits(look_s=1.0, still_s=None, spin_s=None)
    it = Watched(limits, activity=lambda now: Activity(deadlock="a b")).run(2_500.0)
    assert [at for at, _ in it.reports()] == [6.0, 61.0, 301.0, 1801.0]
    assert it.killed_at() == []


def test_who_is_stopped_is_told_to_go_on_once_and_replaced_if_that_does_not_help() -> None:
    it = Watched(activity=lambda now: Activity(stopped=True)).run(400.0)
    assert [at for at, what in it.done if isinstance(what, do.ResumeLife)] == [4.0]
    assert {pulse for _, pulse in it.reports()} == {Pulse.STOPPED}
    assert it.killed_at() == [302.0]


def test_who_is_told_late_to_go_on_has_its_time_to_do_so() -> None:
    stalls, sight, stopped = StallDetector(LIMITS), Sight(0, 1, 1, SAMPLE), Activity(stopped=True)

    def look(at: int, waiting_since: float | None) -> bool:
        stalls.begin(at, {(0, 1)})
        return stalls.see(sight, at, waiting_since)

    assert not look(0, 0.0) and look(2, 0.0)
    assert stalls.examined((0, 1), stopped, 2, 0.0).resume is False
    # The loop is away, and somebody looks meanwhile: nobody may be judged then.
    assert not any(look(at, None) for at in range(3, 401))
    assert look(402, 401.0)
    late = stalls.examined((0, 1), stopped, 402, 401.0)
    assert late is not None and late.resume and not late.replace

    def goes(at: int) -> bool:
        advice = look(at, 401.0) and stalls.examined((0, 1), stopped, at, 401.0)
        return bool(advice and advice.replace)

    assert next(at for at in range(403, 1000) if goes(at)) == 402 - 3 + 300


def test_a_life_that_takes_no_ticket_up_is_replaced_within_eight_seconds() -> None:
    it = Watched(sight=lambda now: Sight(0, 1, 0, OURS)).run(20.0)
    assert it.killed_at()[0] <= 8.0


def test_a_fork_that_does_not_begin_is_replaced_within_eight_seconds() -> None:
    it = Watched(sight=lambda now: Sight(0, 1, 0, OURS), starting=True)
    assert it.run(20.0).killed_at()[0] <= 8.0


def test_a_clean_process_may_take_its_time_to_begin_as_long_as_it_does_something() -> None:
    def imports(now: float) -> Activity:
        return Activity(cpu_s=now)

    begins = Watched(sight=lambda now: Sight(0, 1, 0, CLEAN), activity=imports, starting=True)
    it = begins.run(100.0)
    assert it.killed_at() == []
    assert [at for at, _ in it.reports()] == [61.0]


def test_a_clean_process_that_is_stuck_is_replaced_within_eight_seconds() -> None:
    it = Watched(sight=lambda now: Sight(0, 1, 0, CLEAN), starting=True)
    assert it.run(20.0).killed_at()[0] <= 8.0


def test_the_init_function_is_watched_as_well() -> None:
    it = Watched(sight=lambda now: Sight(0, 1, 0, INIT)).run(400.0)
    assert it.reports()[0] == (6.0, Pulse.STUCK)
    assert it.killed_at() == [302.0]


def test_while_the_loop_is_away_nobody_is_reported_and_nobody_is_judged_by_that_time() -> None:
    it = Watched()
    script = it.script
    script.perform(ev.ParcelsArrived(0, 1, (1,), ev.Outcome.LOADED))  # the loop has it, and goes
    for at in range(1, 31):
        assert script.at(float(at)).perform(ev.LivesSeen((Sight(0, 1, 2, SAMPLE),))) == []
    script.perform(ASK)
    it._sight = lambda now: Sight(0, 1, 2, SAMPLE)
    assert [at for at, _ in it.run(330.5).reports()] == [35.0, 90.0, 330.0]
    assert it.killed_at() == [330.0]  # 300 s after the first close look


@pytest.mark.parametrize(
    "activity, ends",
    [
        (lambda now: Activity(), [7.0]),
        (lambda now: Activity(cpu_s=now), []),
        (lambda now: Activity(io_bytes=int(now)), []),
    ],
    ids=["stuck", "computes", "reads"],
)
def test_who_is_stuck_with_a_batch_of_an_epoch_that_was_left_is_not_waited_for_as_long(
    activity: Callable[[float], Activity], ends: list[float]
) -> None:
    it = Watched(activity=activity, tenure=Tenure.LOADER)
    it.script.refill(4)
    it.script.begin(epoch=1)  # and the life still has ticket 1, which nobody wants any more
    it.script.perform(ASK)
    assert it.run(60.0).killed_at() == ends


def test_what_moves_is_reported_a_little_later_than_what_does_not() -> None:
    it = Watched(activity=lambda now: Activity(cpu_s=now))
    assert it.run(20.0).reports() == [(8.0, Pulse.RUNNING)]
    it = Watched(activity=lambda now: Activity(io_bytes=int(now)))
    assert it.run(20.0).reports() == [(8.0, Pulse.MOVING)]


def test_a_program_that_was_stopped_for_a_while_blames_nobody() -> None:
    it = Watched().run(5.0)
    it.script.at(4_000.0)
    assert it.run(4_250.0).killed_at() == []


def test_where_every_sample_is_slow_one_line_is_enough() -> None:
    def slow(now: float) -> Sight:
        return Sight(0, 1, 1, SAMPLE + int(now) // 10)

    it = Watched(sight=slow, activity=lambda now: Activity(io_bytes=int(now)))
    assert len(it.run(1_000.0).reports()) == 5  # of a hundred: after 60, 120, 240, 480 s


def test_who_holds_what_is_not_due_is_not_reported() -> None:
    plan = Plan(seats=2, window=4, limits=LIMITS)
    script = Script(plan, batches=4).begin().ready(0, 1)
    script.perform(ASK)
    for at in range(1, 20):
        commands = script.at(float(at)).perform(RING) if at else []
        assert do.LookAround() in commands
        sights = (Sight(0, 1, 1, SAMPLE), Sight(1, 1, 2, SAMPLE))
        for command in script.perform(ev.LivesSeen(sights)):
            assert isinstance(command, do.ExamineLife)
            told = script.perform(ev.LifeExamined(command.seat, 1, Activity()))
            assert all(isinstance(c, do.ReportStall) and c.stall.seat == 0 for c in told)


def test_nothing_is_made_of_a_life_that_cannot_be_seen() -> None:
    it = Watched(activity=lambda now: None)
    assert it.run(1_000.0).done == []


def test_a_life_that_could_not_hand_over_while_the_loop_was_away_is_not_late() -> None:
    it = Watched(sight=lambda now: Sight(0, 1, 2, HAND_OVER))
    script = it.script
    script.perform(ev.ParcelsArrived(0, 1, (1,), ev.Outcome.LOADED))
    for at in range(1, 31):
        script.at(float(at)).perform(ev.LivesSeen((Sight(0, 1, 2, HAND_OVER),)))
    script.perform(ASK)
    assert it.run(34.0).done == []
    assert it.run(40.0).killed_at() == [36.0]  # by then it should have


def test_a_stream_that_hangs_is_lost_with_what_was_seen() -> None:
    it = Watched(source=Source.STREAMS, activity=lambda now: Activity(stack=LINE)).run(310.0)
    (raised,) = [what for _, what in it.done if isinstance(what, do.RaiseFault)]
    assert raised.fault.kind is FaultKind.STREAM_LOST
    assert raised.fault.stall is not None and raised.fault.stall.activity.stack == LINE


def test_a_snapshot_shows_the_calls_that_last() -> None:
    it = Watched().run(10.0)
    (call,) = it.script.sup.snapshot().calls
    assert (call.seat, call.life, call.ticket, call.step) == (0, 1, 1, SAMPLE)
    assert (call.since, call.moves, call.reports) == (1.0, False, 1)
    assert repr(it.script.sup._health.stalls) == "<Stalls 1 calls, 1 reported>"
    assert repr(it.script.sup._recovery) == "<Recovery 2 attempts, none spared, 0 faults>"


def test_nothing_is_kept_of_a_life_that_the_kernel_does_not_let_go() -> None:
    plan = Plan(seats=2, window=2, source=Source.STREAMS, limits=Limits(look_s=100.0))
    script = Script(plan, batches=9).begin().ready(0, 1)
    script.perform(ASK)
    script.perform(ev.LivesSeen((Sight(0, 1, 1, SAMPLE),)))
    script.perform(ev.ParcelsArrived(0, 1, (1,), ev.Outcome.ENDED))
    for at in (6.0, 7.0, 13.0):  # asked to leave, terminated, killed
        commands = script.at(at).perform(RING)
    assert do.AbandonLife(0, 1) in commands
    assert not script.sup._health.stalls._calls


def test_after_a_close_there_is_no_further_look() -> None:
    script = Watched().script
    script.perform(CLOSE)
    script.perform(ev.LifeEnded(0, 1, KILLED))
    assert script.sup.next_wakeup() is None


def test_what_is_late_or_unknown_is_ignored() -> None:
    it = Watched()
    assert it.script.perform(ev.LifeExamined(0, 1, Activity())) == []
    assert it.script.perform(ev.LivesSeen((Sight(0, 7, 1, SAMPLE),))) == []
    assert it.script.perform(ev.LifeExamined(0, 7, Activity())) == []


def test_steps_name_the_sample() -> None:
    assert index_at(SAMPLE + 2, [10, 20, 30]) == 30
    assert index_at(SAMPLE + 3, [10, 20, 30]) is None
    assert index_at(COLLATE, [10, 20, 30]) is None
    assert index_at(SAMPLE, 17) is None
    assert is_of_user(SAMPLE + 5) and is_of_user(INIT) and is_of_user(PACK)
    assert not is_of_user(OURS) and not is_of_user(HAND_OVER)
