"""What loading costs a training step: 20 ms of Python, 20 ms of torch, with a loader beside it."""

from __future__ import annotations

import importlib
import statistics
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace

import torch
from contenders import Contender
from lanes import Lane, LaneFailed
from loops import touch
from workloads import WORKLOADS

STEP_S = 0.020
STEPS, STEPS_QUICK = 25, 10
ROUNDS, ROUNDS_QUICK = 3, 1
# The slowest steps of an epoch do not count: they are the first, which waits for workers to start
# where they are new, and those that somebody else's work on the machine held up.
COUNTED = 0.8
# A loop without a loader: what the others are compared with.
ALONE = "alone"


def python_step(amount: int) -> None:
    """Keep the interpreter, and its lock, busy."""
    total = 0
    for number in range(amount):
        total += number * number % 7


_MATRIX = torch.rand(96, 96)


def torch_step(amount: int) -> None:
    """Keep torch busy: it gives the interpreter's lock away, often."""
    for _ in range(amount):
        torch.mm(_MATRIX, _MATRIX)


STEP_KINDS: dict[str, Callable[[int], None]] = {"python": python_step, "torch": torch_step}


@dataclass(slots=True)
class StepTimes:
    """How long a step and its wait for the batch took beside one contender, a number a round."""

    contender: str
    seconds: list[float] = field(default_factory=list)
    error: str = ""

    @property
    def median_s(self) -> float | None:
        """Return the median, or None where there is no figure."""
        return statistics.median(self.seconds) if self.seconds else None


def slowdown(times: StepTimes, alone: StepTimes) -> float | None:
    """Return the median of the ratios to a loop without a loader."""
    divided = [one / other for one, other in zip(times.seconds, alone.seconds, strict=False)]
    return statistics.median(divided) if divided else None


def measure(kind: str, contenders: Sequence[Contender], quick: bool) -> list[StepTimes]:
    """Time steps of one kind beside each contender that can have workers between its epochs."""
    amount = calibrated(STEP_KINDS[kind])
    steps = STEPS_QUICK if quick else STEPS
    chosen: list[Contender | None] = [None]
    chosen += [each for each in contenders if each.kind != "bound"]
    times = {each.key if each else ALONE: StepTimes(each.key if each else ALONE) for each in chosen}
    lanes: dict[str, Lane] = {}

    def ask(each: Contender | None) -> None:
        key = each.key if each else ALONE
        if times[key].error:
            return
        try:
            if key not in lanes:
                lanes[key] = Lane(lambda: loop(each, STEP_KINDS[kind], amount, steps))
                lanes[key].ask()  # a warm-up
            times[key].seconds.append(lanes[key].ask())
            lanes[key].settle()
        except LaneFailed as failure:
            times[key].error = str(failure)
            lanes.pop(key).end()

    try:
        for number in range(ROUNDS_QUICK if quick else ROUNDS):
            for each in chosen[number:] + chosen[:number]:
                ask(each)
    finally:
        for lane in lanes.values():
            lane.hang_up()
        for lane in lanes.values():
            lane.end()
    return list(times.values())


def calibrated(step: Callable[[int], None]) -> int:
    """Return the amount of work that takes 20 ms here: the best of several tries."""
    amount = 200
    for _ in range(6):
        begin = time.perf_counter()
        step(amount)
        amount = max(1, round(amount * STEP_S / (time.perf_counter() - begin)))
    begin = min(_seconds(step, amount) for _ in range(5))
    return max(1, round(amount * STEP_S / begin))


def _seconds(step: Callable[[int], None], amount: int) -> float:
    begin = time.perf_counter()
    step(amount)
    return time.perf_counter() - begin


def loop(
    contender: Contender | None, step: Callable[[int], None], amount: int, steps: int
) -> Iterator[float]:
    """Be a lane: yield the mean of an epoch's steps, the wait for the batch included."""
    known = next(each for each in WORKLOADS if each.name == "tokens")
    workload = replace(known, batches=steps)
    if contender:
        importlib.import_module(contender.module)
    loader = contender.make(workload.dataset(workload.samples), workload) if contender else None
    while True:
        times = []
        begin = time.perf_counter()
        for batch in loader or [None] * steps:
            touch(batch)
            step(amount)
            end = time.perf_counter()
            times.append(end - begin)
            begin = end
        yield statistics.fmean(sorted(times)[: round(COUNTED * steps)])
