"""What every contender's loop does with a batch, and what a turn of epochs costs."""

from __future__ import annotations

import resource
import time
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import torch
from lanes import cpu_s, family


@dataclass(frozen=True, slots=True)
class Turn:
    """Some whole epochs: how many batches, how long, how much CPU of which side."""

    batches: int
    seconds: float
    main_cpu_s: float
    workers_cpu_s: float


def touch(batch: Any) -> None:
    """Read one element of the first tensor of a batch, so that nobody delivers a promise."""
    while not isinstance(batch, torch.Tensor):
        if batch is None:  # the bound hands over nothing
            return
        batch = next(iter(batch.values())) if isinstance(batch, dict) else batch[0]
    while batch.dim():
        batch = batch[0]
    batch.item()


def turn(loader: Iterable[Any], batches: int, least_s: float) -> Turn:
    """Run whole epochs for at least so long; an epoch of the wrong length is an error."""
    main_before, workers_before = _cpu()
    begin = time.perf_counter()
    epochs = 0
    while epochs == 0 or time.perf_counter() - begin < least_s:
        found = 0
        for batch in loader:
            touch(batch)
            found += 1
        if found != batches:
            raise RuntimeError(f"{found} batches instead of {batches}")
        epochs += 1
    seconds = time.perf_counter() - begin
    main, workers = _cpu()
    return Turn(epochs * batches, seconds, main - main_before, workers - workers_before)


def _cpu() -> tuple[float, float]:
    own = resource.getrusage(resource.RUSAGE_SELF)
    reaped = resource.getrusage(resource.RUSAGE_CHILDREN)
    workers = cpu_s(family(None)[:-1]) + reaped.ru_utime + reaped.ru_stime
    return own.ru_utime + own.ru_stime, workers
