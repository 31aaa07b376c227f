"""The loaders that the benchmarks compare, as data: a name and how to make one."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any

from torch.utils.data import Dataset

NUM_WORKERS = 2


@dataclass(frozen=True, slots=True)
class Contender:
    """One loader with one setting. `make` gets dataset and batch size; epochs come from `iter`."""

    name: str
    make: Callable[[Dataset[Any], int], Iterable[Any]]


def _torch(num_workers: int) -> Callable[[Dataset[Any], int], Iterable[Any]]:
    def make(dataset: Dataset[Any], batch_size: int) -> Iterable[Any]:
        from torch.utils.data import DataLoader

        return DataLoader(
            dataset, batch_size, num_workers=num_workers, persistent_workers=num_workers > 0
        )

    return make


def _antifreeze(num_workers: int) -> Callable[[Dataset[Any], int], Iterable[Any]]:
    def make(dataset: Dataset[Any], batch_size: int) -> Iterable[Any]:
        from antifreeze import DataLoader

        return DataLoader(
            dataset, batch_size, num_workers=num_workers, persistent_workers=num_workers > 0
        )

    return make


# The first one is what the others are divided by.
CONTENDERS = (
    Contender(f"torch, {NUM_WORKERS} workers", _torch(NUM_WORKERS)),
    Contender(f"antifreeze, {NUM_WORKERS} workers", _antifreeze(NUM_WORKERS)),
    Contender("torch, 0 workers", _torch(0)),
    Contender("antifreeze, 0 workers", _antifreeze(0)),
)
