"""Samples a second: every contender on every workload, in turns, the order rotated each round."""

from __future__ import annotations

import importlib
import statistics
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from contenders import Contender
from lanes import Lane, LaneFailed
from loops import Turn, turn
from torch.utils.data import Dataset
from workloads import Workload

# A turn is some whole epochs: one of a slow loader, several of a fast one.
TURN_S, TURN_QUICK_S = 0.15, 0.05
ROUNDS, ROUNDS_QUICK = 5, 2
QUICK_SHRINKS_BY = 4
# Batches that a pipeline which never rests may have ready, in all its buffers together.
MOST_AHEAD = 16


@dataclass(slots=True)
class Figures:
    """What one contender did on one workload; `turns` has None for a round it did not finish."""

    contender: str
    batch_size: int
    turns: list[Turn | None] = field(default_factory=list)
    error: str = ""

    @property
    def rates(self) -> list[float | None]:
        """Return samples a second, round by round."""
        return [each and each.batches * self.batch_size / each.seconds for each in self.turns]

    @property
    def rate(self) -> float | None:
        """Return the median of the rates."""
        known = [rate for rate in self.rates if rate]
        return statistics.median(known) if known else None

    @property
    def least_cpu_s(self) -> float:
        """Return CPU seconds a batch of all processes, in the round that took least: what others
        do on the machine can only add to it."""
        turns = [each for each in self.turns if each]
        spent = [(each.main_cpu_s + each.workers_cpu_s) / each.batches for each in turns]
        return min(spent, default=0.0)

    def cpu_s(self, batches: int) -> tuple[float, float] | None:
        """Return CPU seconds of the main process and of the workers for so many batches."""
        known = [each for each in self.turns if each]
        if not known:
            return None
        scale = batches / sum(each.batches for each in known)
        main = sum(each.main_cpu_s for each in known) * scale
        return main, sum(each.workers_cpu_s for each in known) * scale


def ratios(figures: Figures, base: Figures) -> list[float]:
    """Divide round by round; rounds that one of the two did not finish are left out."""
    pairs = zip(figures.rates, base.rates, strict=False)
    return [one / other for one, other in pairs if one and other]


def ratio(figures: Figures | None, base: Figures | None) -> float | None:
    """Return the median of the ratios, or None where one of the two has no figures."""
    divided = ratios(figures, base) if figures and base else []
    return statistics.median(divided) if divided else None


def measure(workload: Workload, contenders: Sequence[Contender], quick: bool) -> list[Figures]:
    """Run all contenders on one workload. Who fails drops out; the others go on."""
    if quick:
        workload = replace(workload, batches=max(4, workload.batches // QUICK_SHRINKS_BY))
    dataset = workload.dataset(workload.samples)
    figures = {each.key: Figures(each.key, workload.batch_size) for each in contenders}
    lanes: dict[str, Lane] = {}
    least_s = TURN_QUICK_S if quick else TURN_S

    def answer(key: str) -> Turn | None:
        try:
            answer: Turn = lanes[key].answer()
            lanes[key].settle()
            return answer
        except LaneFailed as failure:
            figures[key].error = str(failure)
            lanes.pop(key).end()
            return None

    try:
        for each in contenders:  # forked one after the other, each with the same memory
            lanes[each.key] = Lane(lambda each=each: epochs(each, dataset, workload, least_s))
            lanes[each.key].post()  # an epoch to warm up, all of them at once
        for each in contenders:
            answer(each.key)
        for number in range(ROUNDS_QUICK if quick else ROUNDS):
            first = number * len(contenders) // (ROUNDS_QUICK if quick else ROUNDS)
            for each in (*contenders[first:], *contenders[:first]):
                if each.key in lanes:
                    lanes[each.key].post()
                figures[each.key].turns.append(answer(each.key) if each.key in lanes else None)
    finally:
        for lane in lanes.values():
            lane.hang_up()
        for lane in lanes.values():
            lane.end()
    return list(figures.values())


def epochs(
    contender: Contender, dataset: Dataset[Any], workload: Workload, least_s: float
) -> Iterator[Turn]:
    """Be a lane: one epoch to warm up, then a turn each time."""
    importlib.import_module(contender.module)
    loader = contender.make(dataset, workload)
    yield turn(loader, workload.batches, 0.0)
    while True:
        if not contender.restarts:  # it has fetched ahead while others had their turns
            for _ in range(-(-MOST_AHEAD // workload.batches)):
                turn(loader, workload.batches, 0.0)
        yield turn(loader, workload.batches, least_s)
