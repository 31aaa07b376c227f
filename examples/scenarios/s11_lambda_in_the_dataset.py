"""Scenario 11: a dataset keeps its transform as a lambda.

What people report: "AttributeError: Can't pickle local object" or "Can't get attribute <lambda>",
on one machine and not on the other.

What is true: it depends on how workers start. A forked worker inherits the dataset, lambda and
all. Under `spawn` (macOS, Windows) and `forkserver` (Linux from Python 3.14 on) the dataset is
pickled, and plain pickle sends functions by name; a lambda has none.

What to look at: how each way of starting ends; how often the dataset was sent; and what is said of
a part that truly cannot be sent.
"""

from __future__ import annotations

import sys
import time
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import torch
from scenario import LOADERS, Outcomes, Pass, Report, Scenario, Verdict, perform
from torch.utils.data import Dataset

SAMPLES = 400
BATCH_SIZE = 20
NUM_WORKERS, NUM_WORKERS_QUICK = 2, 1
FORK, SPAWN, FORKSERVER = "fork", "spawn", "forkserver"


class Scaled(Dataset[torch.Tensor]):
    """Numbers, through a transform that was given where the dataset was made."""

    def __init__(self, transform: Callable[[int], int]) -> None:
        self.transform = transform

    def __len__(self) -> int:
        return SAMPLES

    def __getitem__(self, index: int) -> torch.Tensor:
        return torch.tensor(self.transform(index))


class Readers(Scaled):
    """The same, with something in it that no other process can have."""

    def __init__(self, transform: Callable[[int], int]) -> None:
        super().__init__(transform)
        self.readers = [None, {"rows": self.read()}]

    def read(self) -> Iterator[int]:
        yield from range(SAMPLES)


def make(folder: Path, quick: bool) -> None:
    """Make nothing: the numbers are computed."""


def load(loader_class: type[Any], method: str, quick: bool) -> Report:
    """Load all numbers with workers that start in this way, and compare each."""
    factor = 3
    loader = loader_class(
        Scaled(lambda index: factor * index),
        batch_size=BATCH_SIZE,
        num_workers=NUM_WORKERS_QUICK if quick else NUM_WORKERS,
        multiprocessing_context=method,
    )
    begin = time.perf_counter()
    got = [int(number) for batch in loader for number in batch]
    seconds = time.perf_counter() - begin
    wrong = sum(number != factor * index for index, number in enumerate(got))
    return Report({method: Pass(len(got), wrong, SAMPLES - len(got), seconds)}, {})


def load_forked(loader_class: type[Any], folder: Path, quick: bool) -> Report:
    """Load with forked workers."""
    return load(loader_class, FORK, quick)


def load_spawned(loader_class: type[Any], folder: Path, quick: bool) -> Report:
    """Load with workers that are new interpreters."""
    return load(loader_class, SPAWN, quick)


def load_served(loader_class: type[Any], folder: Path, quick: bool) -> Report:
    """Load with workers of a fork server."""
    return load(loader_class, FORKSERVER, quick)


def refusal(loader_class: type[Any]) -> str:
    """Give what is said of a dataset that cannot be sent, in one line."""
    loader = loader_class(Readers(abs), num_workers=NUM_WORKERS, multiprocessing_context=SPAWN)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # torch gives advice, too
            iter(loader)
    except Exception as error:
        return f"{type(error).__name__}: {str(error).splitlines()[0]}"
    return "nothing"


def judge(outcomes: Outcomes) -> Verdict:
    """Say how each way ended and what is refused; well if every number came with ours."""
    findings = []
    for loader in LOADERS:
        for way in WAYS:
            outcome = outcomes.of(loader, way)[0]
            words = f": {outcome.last_words}" if outcome.ended == "failed" else ""
            findings.append(f"{loader}, {way}: {outcome.ended}{words}")
    from antifreeze import DataLoader

    findings.append(f"a generator in it, torch: {refusal(torch.utils.data.DataLoader)}")
    said = refusal(DataLoader)
    findings.append(f"a generator in it, antifreeze: {said}")
    ok = all(outcome.right for outcome in outcomes.antifreeze)
    return Verdict(ok and 'dataset.readers[1]["rows"]' in said, tuple(findings))


WAYS = {FORK: load_forked, SPAWN: load_spawned, FORKSERVER: load_served}

SCENARIO = Scenario(
    number=11,
    title="a lambda in the dataset",
    make=make,
    load=WAYS,
    judge=judge,
    rounds=1,  # it is about how runs end
)

if __name__ == "__main__":
    sys.exit(perform(SCENARIO))
