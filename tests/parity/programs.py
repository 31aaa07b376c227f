"""Datasets and collate functions of the programs that run through both loaders."""

import multiprocessing
import os
import random
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import torch
from torch.utils.data import DataLoader, IterableDataset, get_worker_info


class Pair(NamedTuple):
    """A sample with named fields."""

    index: int
    row: torch.Tensor


class OneString(Exception):
    """An exception class of the program's own, made from one string."""


RAISED: dict[str, type[Exception]] = {
    "ValueError": ValueError,
    "RuntimeError": RuntimeError,
    "ZeroDivisionError": ZeroDivisionError,
    "OneString": OneString,
}


def sample_of(form: str, index: int) -> Any:
    """Make the sample of an index in the form named; the same on every call."""
    row = torch.arange(3, dtype=torch.float32) + index
    match form:
        case "int":
            return index
        case "float":
            return index / 4
        case "str":
            return f"sample {index}"
        case "tensor":
            return row
        case "half":
            return row.to(torch.bfloat16)
        case "array":
            return np.full((2, 2), index, dtype=np.int16)
        case "scalar":
            return np.float64(index)
        case "tuple":
            return index, row
        case "pair":
            return Pair(index, row)
        case "dict":
            return {"index": index, "row": row, "name": str(index), "deep": [row, {"x": index}]}
        case "noise":
            return {"index": index, "noise": torch.rand(2), "more": np.random.rand(3)}
    raise AssertionError(form)


# Forms whose every value is a function of the index, and those that draw random numbers.
SURE_FORMS = (
    "int",
    "float",
    "str",
    "tensor",
    "half",
    "array",
    "scalar",
    "tuple",
    "pair",
    "dict",
)
DRAWN_KEYS = frozenset({"noise", "more"})


@dataclass(frozen=True)
class MapRows:
    """A map-style dataset whose samples are a function of the index; some raise."""

    length: int
    form: str = "int"
    bad: frozenset[int] = frozenset()
    raises: str = "ValueError"

    def __len__(self) -> int:
        return self.length

    def __getitem__(self, index: int) -> Any:
        if index in self.bad:
            raise RAISED[self.raises](f"sample {index} is bad\nsecond line")
        return sample_of(self.form, index)


class MapBatches(MapRows):
    """The same rows, fetched many at a time."""

    def __getitems__(self, indices: list[int]) -> list[Any]:
        return [self[index] for index in indices]


@dataclass(frozen=True)
class Streams(IterableDataset):
    """An iterable dataset with one stream for each worker, each with a length of its own.

    Values say which stream they come from. With `resumable` an iterator that raised goes on
    with the next value; a generator that raised is finished.
    """

    lengths: tuple[int, ...]
    form: str = "int"
    bad: frozenset[int] = frozenset()
    raises: str = "ValueError"
    resumable: bool = False

    def __iter__(self) -> Iterator[Any]:
        info = get_worker_info()
        worker = 0 if info is None else info.id
        values = range(100 * worker, 100 * worker + self.lengths[worker])
        return _Resumable(self, iter(values)) if self.resumable else self._generate(values)

    def value(self, index: int) -> Any:
        """Make one value, or raise."""
        if index in self.bad:
            raise RAISED[self.raises](f"value {index} is bad\nsecond line")
        return sample_of(self.form, index)

    def _generate(self, values: range) -> Iterator[Any]:
        for index in values:
            yield self.value(index)


@dataclass
class _Resumable:
    streams: Streams
    indices: Iterator[int]

    def __iter__(self) -> "_Resumable":
        return self

    def __next__(self) -> Any:
        return self.streams.value(next(self.indices))


def as_list(samples: Any) -> Any:
    """Collate to what came, untouched."""
    return samples


def as_count_and_list(samples: list[Any]) -> dict[str, Any]:
    """Collate to a mapping of the program's own shape."""
    return {"count": len(samples), "samples": tuple(samples)}


@dataclass
class FailingCollate:
    """Collate to a list, but raise where a batch holds the number named."""

    bad: int

    def __call__(self, samples: list[int]) -> list[int]:
        if self.bad in samples:
            raise ValueError(f"cannot collate {self.bad}\nsecond line")
        return samples


COLLATES: dict[str, Callable[..., Any] | None] = {
    "default": None,
    "list": as_list,
    "mapping": as_count_and_list,
}


PAIRS = [[0, 1], [2, 3], [4, 5], [6, 7], [8, 9]]


def pairs(loader_class: type[DataLoader], workers: int, **arguments: Any) -> Any:
    """Make a loader of five pairs of numbers."""
    return loader_class(
        MapRows(10), batch_size=2, num_workers=workers, collate_fn=as_list, **arguments
    )


@dataclass
class SlowAt:
    """A dataset one of whose samples takes its time."""

    slow: int
    seconds: float
    length: int = 8

    def __len__(self) -> int:
        return self.length

    def __getitem__(self, index: int) -> int:
        if index == self.slow:
            time.sleep(self.seconds)
        return index


class Introspective:
    """A dataset that tells where its samples are loaded."""

    def __len__(self) -> int:
        return 8

    def __getitem__(self, index: int) -> dict[str, Any]:
        info = get_worker_info()
        if info is None:
            return {"index": index, "worker": None}
        return {
            "index": index,
            "worker": info.id,
            "of": info.num_workers,
            "seed": info.seed,
            "own": info.dataset is self,
            "torch": torch.initial_seed(),
            "draws": [random.random(), float(np.random.rand()), torch.rand(()).item()],
            "marked": getattr(self, "marked", None),
            "daemon": multiprocessing.current_process().daemon,
            "threads": torch.get_num_threads(),
            "pid": os.getpid(),
        }


def mark(worker: int) -> None:
    """Leave a mark on the worker's copy of the dataset, as sharding code does."""
    info = get_worker_info()
    assert info is not None
    assert info.id == worker
    info.dataset.marked = ("worker", worker, random.random())


def thrower(error: BaseException) -> Callable[[], None]:
    """Make a function that raises the very exception given."""

    def throw() -> None:
        raise error

    return throw


@dataclass
class Throws:
    """A map-style dataset; one index calls a function that raises."""

    throw: Callable[[], None]
    bad: int = 3
    length: int = 8

    def __len__(self) -> int:
        return self.length

    def __getitem__(self, index: int) -> int:
        if index == self.bad:
            self.throw()
        return index
