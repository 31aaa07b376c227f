"""Measure how fast both loaders bring batches that cost nothing to load: the way between processes.

Prints one JSON object a line on stdout: `turn` for each turn of a loader, `failed` for a loader
that raised. Workers are running before a turn begins; the loaders take turns, torch first in one
round and second in the next.
"""

from __future__ import annotations

import argparse
import faulthandler
import json
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch.utils.data import Dataset

NUM_WORKERS = 2
TURN_S = 0.5
ROUNDS = 3
# Before a turn is timed: the workers start, and what they prepare ahead comes to its usual amount.
WARM_UP_BATCHES = 8
# More than anybody can load in a turn.
LENGTH = 10**8
# Distinct samples that are held in memory.
DISTINCT = 64
BOUND_S = 60.0


class Ready(Dataset[Any]):
    """Samples that are in memory already: nothing to read, nothing to decode."""

    def __init__(self, samples: Any) -> None:
        self.samples = samples

    def __len__(self) -> int:
        return LENGTH

    def __getitem__(self, index: int) -> Any:
        return self.samples[index % len(self.samples)]


@dataclass(frozen=True, slots=True)
class Load:
    """One kind of batch."""

    title: str
    batch_size: int
    samples: Callable[[], Any]  # something with a length and indices


LOADS = (
    Load("float images, batch 32", 32, lambda: torch.rand(DISTINCT, 3, 192, 192)),
    Load("tokens, batch 32", 32, lambda: torch.randint(50_000, (DISTINCT, 1024))),
    Load("integers, batch 1", 1, lambda: range(DISTINCT)),
)


def tell(event: str, **facts: Any) -> None:
    """Write one line for run.py."""
    print(json.dumps({"event": event, **facts}), flush=True)


def turn(loader: Any, batch_size: int) -> float:
    """Take batches for a while and do nothing with them; return samples a second."""
    batches = iter(loader)
    for _ in range(WARM_UP_BATCHES):
        next(batches)
    taken, begin = 0, time.perf_counter()
    while (seconds := time.perf_counter() - begin) < TURN_S:
        next(batches)
        taken += 1
    return taken * batch_size / seconds


def compare(load: Load, rounds: int) -> None:
    """Let both loaders take turns on one kind of batch. A loader that raises drops out."""
    from torch.utils.data import DataLoader as TorchLoader

    from antifreeze import DataLoader as OurLoader

    dataset = Ready(load.samples())
    loaders = {
        name: make(dataset, load.batch_size, num_workers=NUM_WORKERS, persistent_workers=True)
        for name, make in (("torch", TorchLoader), ("antifreeze", OurLoader))
    }
    for number in range(rounds):
        for name in sorted(loaders, reverse=number % 2 == 0):
            try:
                rate = turn(loaders[name], load.batch_size)
            except Exception as error:  # such as a /dev/shm that is too small for torch's batches
                tell("failed", load=load.title, loader=name, error=str(error).splitlines()[-1])
                del loaders[name]
            else:
                tell("turn", load=load.title, loader=name, samples_per_s=rate)


def main() -> None:
    """Measure every kind of batch."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--rounds", type=int, default=ROUNDS)
    options = parser.parse_args()
    # If whoever watches dies first, this must still end.
    faulthandler.dump_traceback_later(BOUND_S, exit=True)
    torch.set_num_threads(1)  # the workers need the other cores
    for load in LOADS:
        compare(load, options.rounds)


if __name__ == "__main__":
    main()
