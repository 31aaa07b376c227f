"""What a run prints: a line now and then, and tables at the end."""

from __future__ import annotations

import time
from collections import Counter, defaultdict

from .perform import Outcome


class Tally:
    """The sum of all outcomes."""

    def __init__(self) -> None:
        self.began = time.monotonic()
        self.recipes = self.epochs = self.samples = self.let_go = 0
        self.faults: Counter[str] = Counter()
        self.delays: defaultdict[str, list[float]] = defaultdict(list)
        self.failed: list[Outcome] = []

    def add(self, outcome: Outcome) -> None:
        self.recipes += 1
        self.epochs += outcome.epochs
        self.samples += outcome.samples
        self.let_go += outcome.raised_after_two_hits
        self.faults.update(outcome.faults)
        for kind, seconds in outcome.delays:
            self.delays[kind].append(seconds)
        if outcome.problems:
            self.failed.append(outcome)

    def line(self) -> str:
        passed_s = time.monotonic() - self.began
        return (
            f"{passed_s:5.0f} s: {self.recipes} loaders, {self.epochs} epochs,"
            f" {self.samples} samples, {self.faults.total()} faults, {len(self.failed)} wrong"
        )

    def table(self) -> str:
        """Lay out what was done, and how long batches that were hit took to come."""
        head = (
            f"{'fault':24}{'done':>7}{'hit':>7}{'median':>10}{'90 %':>10}{'99 %':>10}{'worst':>10}"
        )
        rows = [head, "-" * len(head)]
        everything: list[float] = []
        for kind, count in sorted(self.faults.items()):
            delays = self.delays[kind]
            everything += delays
            rows.append(f"{kind:24}{count:7}{len(delays):7}{_spread(delays)}")
        rows.append(f"{'all':24}{self.faults.total():7}{len(everything):7}{_spread(everything)}")
        rows.append("")
        rows.append(
            f"{self.recipes} loaders, {self.epochs} epochs, {self.samples} samples;"
            f" {self.let_go} batches were hit twice, and raised or let go for it"
        )
        return "\n".join(rows)


def _spread(seconds: list[float]) -> str:
    if not seconds:
        return f"{'-':>10}" * 4
    return "".join(f"{share(seconds, part):8.3f} s" for part in (0.5, 0.9, 0.99, 1.0))


def share(seconds: list[float], part: float) -> float:
    """Give the time in which this share of them were done."""
    ordered = sorted(seconds)
    return ordered[min(len(ordered) - 1, int(part * len(ordered)))]


def complaint(outcome: Outcome, recipe: object, seed: int) -> str:
    """Say what was wrong with one recipe, and how to see it again."""
    shown = [f"  wrong   {problem}" for problem in outcome.problems[:12]]
    more = len(outcome.problems) - len(shown)
    lines = [
        f"recipe {outcome.number} of seed {seed} went wrong; again: python -m tests.chaos"
        f" --seed {seed} --only {outcome.number}",
        f"  {recipe}",
        *shown,
        *([f"  ... and {more} more"] if more > 0 else []),
        *[f"  said    {line}" for line in outcome.said[-30:]],
    ]
    return "\n".join(lines)
