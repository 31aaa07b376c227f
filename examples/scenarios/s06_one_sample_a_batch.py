"""Scenario 6: a million integers, one a batch.

What people report: "the loader is so slow on a trivial dataset that it seems frozen, and with
workers it gets worse, not better".

What is true: a loader's cost is per batch, not per byte. Indices go out, a batch comes back, the
loop wakes up: that costs the same whether the batch holds one integer or a hundred. With a sample
that costs nothing there is nothing for workers to do in parallel, so each of them only adds the
price of a message; pinned memory, often advised here, changes nothing of that. Two remedies help:
no workers at all, and more samples a batch.

What to look at: down a column, how samples a second grow with the batch size; between the rows
with and without workers, what the messages cost; and which row is the fastest. The dataset has a
million samples, and each row reads as many of them as it can in a short time.
"""

from __future__ import annotations

import sys
import time
from pathlib import Path
from typing import Any

from scenario import LOADERS, Outcomes, Pass, Report, Scenario, Verdict, perform
from torch.utils.data import Dataset

MILLION = 1_000_000
BATCH_SIZES = (1, 10, 100)
WORKERS = (2, 0)
# How long one row reads. torch's workers bring about a thousand batches in a second.
READ_S, READ_QUICK_S = 0.8, 0.15
# Not timed: the workers start, and what they prepare ahead comes to its usual amount.
WARM_UP_BATCHES = 50


class Integers(Dataset[int]):
    """Nothing to load at all: what remains is the cost of a batch."""

    def __len__(self) -> int:
        return MILLION

    def __getitem__(self, index: int) -> int:
        return index


def make(folder: Path, quick: bool) -> None:
    """Make nothing: an integer needs no file."""


def row(workers: int, batch_size: int) -> str:
    """Name one row of the table."""
    return f"{f'{workers} workers' if workers else 'no workers'}, batch of {batch_size}"


def load(loader_class: type[Any], folder: Path, quick: bool) -> Report:
    """Read a part of the million with each batch size, with workers and without."""
    passes = {}
    for workers in WORKERS:
        for batch_size in BATCH_SIZES:
            loader = loader_class(Integers(), batch_size=batch_size, num_workers=workers)
            passes[row(workers, batch_size)] = read_for(loader, READ_QUICK_S if quick else READ_S)
    return Report(passes, {})


def read_for(loader: Any, read_s: float) -> Pass:
    """Read batches for so long, or all of them; check the place and value of every integer."""
    position = wrong = warm_up = missing = 0
    begin = time.perf_counter()
    seconds = 0.0
    for number, batch in enumerate(loader, 1):
        values = batch.tolist()
        wrong += sum(value != position + place for place, value in enumerate(values))
        position += len(values)
        if number == WARM_UP_BATCHES:
            warm_up, begin = position, time.perf_counter()
        elif number > WARM_UP_BATCHES and (seconds := time.perf_counter() - begin) >= read_s:
            break
    else:
        missing = MILLION - position
    return Pass(position - warm_up, wrong, missing, seconds)


def judge(outcomes: Outcomes) -> Verdict:
    """Say what a million costs each way, and which is best; well if every integer was right."""
    rates = {
        (loader, workers, size): outcomes.rate(loader, row(workers, size)).median
        for loader in LOADERS
        for workers in WORKERS
        for size in BATCH_SIZES
    }
    ok = all(outcome.right for outcome in outcomes.torch + outcomes.antifreeze)
    if not ok or not all(rates.values()):
        return Verdict(False, ("not every way of reading came to its end with the right integers",))
    findings = []
    for loader in LOADERS:
        with_workers, without = (in_words(MILLION / rates[loader, n, 1]) for n in WORKERS)
        findings.append(
            f"{loader}: at this rate a million integers, one a batch, take {with_workers} with "
            f"{WORKERS[0]} workers and {without} without"
        )
    for loader in LOADERS:
        costs = [f"{size * 1e6 / rates[loader, WORKERS[0], size]:,.0f}" for size in BATCH_SIZES]
        sizes = ", ".join(str(size) for size in BATCH_SIZES)
        findings.append(
            f"{loader}, {WORKERS[0]} workers: a batch of {sizes} costs {', '.join(costs)} us: "
            "per batch, not per byte"
        )
    gain = rates["antifreeze", WORKERS[0], 1] / rates["torch", WORKERS[0], 1]
    findings.append(f"with {WORKERS[0]} workers, one a batch: antifreeze {gain:.1f}x torch")
    findings += [best(rates, 1), best(rates, BATCH_SIZES[-1])]
    return Verdict(ok, tuple(findings))


def best(rates: dict[tuple[str, int, int], float], batch_size: int) -> str:
    """Say which way is the fastest with one batch size."""
    loader, workers, size = max(
        (way for way in rates if way[2] == batch_size), key=rates.__getitem__
    )
    needed = in_words(MILLION / rates[loader, workers, size])
    who = f"{loader}, {workers or 'no'} workers"
    return f"fastest with a batch of {size}: {who}: {needed} for the million"


def in_words(seconds: float) -> str:
    """Write a time as people say it."""
    return f"{seconds / 60:.1f} minutes" if seconds >= 100 else f"{seconds:.1f} s"


SCENARIO = Scenario(
    number=6,
    title="a million integers, one a batch",
    make=make,
    load=load,
    judge=judge,
)

if __name__ == "__main__":
    sys.exit(perform(SCENARIO))
