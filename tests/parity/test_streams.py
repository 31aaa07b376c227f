"""Iterable datasets and data pipes through both loaders."""

import itertools
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import torch
from torch.utils.data import IterableDataset
from torch.utils.data.datapipes.iter import IterableWrapper
from torch.utils.data.datapipes.map import SequenceWrapper

from .observe import (
    LOADERS,
    LoaderClass,
    describe,
    watch,
)
from .programs import as_list

WORKERS = pytest.mark.parametrize("workers", [0, 2])


class OwnIterator(IterableDataset):
    """An iterable dataset that is its own iterator: one pass in all, unless it is copied."""

    def __init__(self, length: int) -> None:
        self.left = length

    def __iter__(self) -> "OwnIterator":
        return self

    def __next__(self) -> int:
        if not self.left:
            raise StopIteration
        self.left -= 1
        return self.left


@WORKERS
@pytest.mark.parametrize("batch_size", [None, 2])
def test_a_dataset_that_is_its_own_iterator_is_used_as_torch_does(
    workers: int, batch_size: int | None, loader_class: LoaderClass
) -> None:
    def epochs(which: LoaderClass) -> list[Any]:
        loader = which(
            OwnIterator(5), batch_size=batch_size, num_workers=workers, collate_fn=as_list
        )
        return watch(loader, 2, see=as_list)

    seen = epochs(loader_class)
    assert seen == epochs(LOADERS["torch"])
    assert len(seen[0]) > 3


@dataclass
class Closing(IterableDataset):
    """A stream that holds something open; without a length it has no end."""

    note: Path
    length: int | None

    def __iter__(self) -> Iterator[int]:
        try:
            yield from itertools.count() if self.length is None else range(self.length)
        finally:
            with self.note.open("a") as file:
                file.write("closed\n")


@pytest.mark.parametrize("workers", [0, 2])
@pytest.mark.parametrize("length", [None, 6])
def test_a_stream_is_closed_when_its_loop_is_over(
    workers: int,
    length: int | None,
    loader_class: LoaderClass,
    tmp_path: Path,
    no_new_children: Callable[[], None],
) -> None:
    stream = Closing(tmp_path / "note", length)
    iterator = iter(loader_class(stream, batch_size=2, num_workers=workers, collate_fn=as_list))
    taken = list(itertools.islice(iterator, None if length else 8))
    assert taken[-1] == ([4, 5] if length else taken[-1])
    assert len(taken) == (3 * max(1, workers) if length else 8)
    del iterator
    no_new_children()
    assert stream.note.read_text() == "closed\n" * max(1, workers)


class TwoAtATime(IterableDataset):
    """An iterable dataset whose one generator feeds every loop."""

    def __iter__(self) -> Iterator[int]:
        yield from range(6)


def test_two_loops_over_an_iterable_dataset_do_not_mix(loader_class: LoaderClass) -> None:
    loader = loader_class(TwoAtATime(), batch_size=3, num_workers=1, collate_fn=as_list)
    assert list(zip(loader, loader, strict=True)) == [([0, 1, 2],) * 2, ([3, 4, 5],) * 2]


def double(number: int) -> int:
    """Map of the pipe."""
    return 2 * number


def not_six(number: int) -> bool:
    """Filter of the pipe."""
    return number != 6


def make_pipe(kind: str) -> Any:
    """Make a data pipe of the kind named."""
    pipe = IterableWrapper(list(range(12)))
    match kind:
        case "plain":
            return pipe.map(double).filter(not_six)
        case "shuffled":
            return pipe.shuffle().map(double)
        case "sharded":
            return pipe.shuffle().sharding_filter().map(double).batch(2)
        case "map":
            return SequenceWrapper(list(range(12))).map(double)
    raise AssertionError(kind)


@pytest.mark.filterwarnings("ignore::DeprecationWarning")
@pytest.mark.filterwarnings("ignore::FutureWarning")
@pytest.mark.filterwarnings("ignore:`shuffle=True` was set, but the datapipe")
@pytest.mark.parametrize("kind", ["plain", "shuffled", "sharded", "map"])
@pytest.mark.parametrize(
    ("workers", "persistent", "shuffle"),
    [(0, False, None), (0, False, True), (2, False, False), (2, False, True), (2, True, None)],
)
def test_data_pipes_give_what_they_give_with_torch(
    kind: str, shuffle: bool | None, workers: int, persistent: bool, ours: LoaderClass
) -> None:
    def epochs(which: LoaderClass) -> list[Any]:
        torch.manual_seed(3)
        loader = which(
            make_pipe(kind),
            batch_size=2,
            shuffle=shuffle,
            num_workers=workers,
            persistent_workers=persistent,
        )
        return watch(loader, 2, see=describe)

    assert epochs(ours) == epochs(LOADERS["torch"])
