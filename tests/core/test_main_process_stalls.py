"""Calls in the loop's own process: when something is said of them, and of which."""

from __future__ import annotations

from collections.abc import Callable

from antifreeze._core.health.main_process_stalls import MainProcessCall, MainProcessCalls
from antifreeze._core.health.stall_detection import Activity, Pulse, StackLine
from antifreeze._core.health.worker_phases import OURS, SAMPLE, SAMPLER, is_of_user

LINE = (StackLine("data.py", 7, "__getitem__"),)
Told = list[tuple[float, int, Pulse]]


def still(now: float) -> Activity:
    return Activity(stack=LINE, waits_for="sleeping")


def busy(now: float) -> Activity:
    return Activity(cpu_s=now, io_bytes=int(now), stack=LINE)


def in_sample(now: float) -> list[MainProcessCall]:
    return [MainProcessCall(loop=1, thread=7, position=4, step=SAMPLE + 2)]


def looked_at(
    calls: Callable[[float], list[MainProcessCall]],
    activity: Callable[[float], Activity] = still,
    until: float = 2_000.0,
    every: float = 1.0,
) -> Told:
    """Look once a second; give what was told, when, and of which loop."""
    it, told, now = MainProcessCalls(), [], 0.0
    while now <= until:
        for loop in it.seen(calls(now), now):
            stall = it.examined(loop, activity(now), now)
            if stall is not None:
                told.append((now, stall.seat, stall.pulse))
        now += every
    return told


def test_what_stands_still_is_told_after_five_seconds_and_again_but_nobody_is_replaced() -> None:
    times = [5.0, 60.0, 300.0, 1800.0]
    assert looked_at(in_sample) == [(at, 1, Pulse.STUCK) for at in times]


def test_what_moves_is_told_after_seven_seconds() -> None:
    times = [7.0, 60.0, 300.0, 1800.0]
    assert looked_at(in_sample, busy) == [(at, 1, Pulse.MOVING) for at in times]


def test_what_moved_and_then_stands_still_is_told_in_time() -> None:
    told = looked_at(in_sample, lambda now: Activity(io_bytes=int(min(now, 3.0))), until=10.0)
    assert told == [(7.0, 1, Pulse.MOVING)]


def test_nothing_is_said_of_a_loop_that_is_away() -> None:
    assert looked_at(lambda now: [MainProcessCall(1, 7, 4, OURS)]) == []


def test_another_sample_and_another_batch_are_progress() -> None:
    def by_sample(now: float) -> list[MainProcessCall]:
        return [MainProcessCall(1, 7, 4, SAMPLE + int(now) // 4)]

    def by_batch(now: float) -> list[MainProcessCall]:
        return [MainProcessCall(1, 7, int(now) // 4, SAMPLER)]

    assert looked_at(by_sample) == []
    assert looked_at(by_batch) == []


def test_where_every_sample_is_slow_one_line_is_enough_for_a_minute_then_for_two() -> None:
    def slow(now: float) -> list[MainProcessCall]:
        return [MainProcessCall(1, 7, int(now) // 8, SAMPLE)]

    told = looked_at(slow, busy, until=400.0)
    assert [at for at, _, _ in told] == [7.0, 71.0, 191.0]


def test_of_loops_inside_one_another_the_innermost_is_told() -> None:
    def nested(now: float) -> list[MainProcessCall]:
        return [
            MainProcessCall(1, 7, 0, SAMPLE),
            MainProcessCall(2, 7, 3, SAMPLE),
            MainProcessCall(3, 8, 0, SAMPLER),
        ]

    assert [loop for _, loop, _ in looked_at(nested, until=10.0)] == [2, 3]


def test_an_outer_loop_has_its_time_from_when_the_inner_one_has_ended() -> None:
    def nested(now: float) -> list[MainProcessCall]:
        return in_sample(now) + ([MainProcessCall(2, 7, 3, SAMPLE)] if now < 4.0 else [])

    assert looked_at(nested, until=20.0) == [(9.0, 1, Pulse.STUCK)]


def test_time_in_which_nobody_looked_is_nobodys() -> None:
    assert looked_at(in_sample, until=100.0, every=20.0) == []


def test_a_sampler_is_code_of_the_users() -> None:
    assert is_of_user(SAMPLER)


def test_a_loop_whose_every_sample_is_slow_is_told_of_once_a_minute_and_then_less_often() -> None:
    calls, told = MainProcessCalls(), []
    for now in range(400):
        call = MainProcessCall(1, 1, now // 8, SAMPLE)  # eight seconds a batch
        for loop in calls.seen([call], float(now)):
            if calls.examined(loop, Activity(), float(now)) is not None:
                told.append(now)
    assert len(told) == 3 and told[0] < 8 and told[1] > 60 and told[2] > 180
