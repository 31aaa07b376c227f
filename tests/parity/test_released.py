"""A loader that nobody holds any more lets go of its dataset at once, as torch's does: programs
make many of them, and the collector of cycles may come late, or be switched off."""

from __future__ import annotations

import gc
import itertools
import weakref
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from torch.utils.data import DataLoader as TorchLoader
from torch.utils.data import Dataset, IterableDataset

from antifreeze import DataLoader


class Samples(Dataset[int]):
    def __len__(self) -> int:
        return 8

    def __getitem__(self, index: int) -> int:
        if index == 5:
            raise ValueError("a bad sample")
        return index


class Stream(IterableDataset[int]):
    def __iter__(self) -> Iterator[int]:  # antifreeze: allow[iterable-in-every-worker]
        yield from range(8)


def whole_epochs(loader: Any) -> None:
    for _ in range(2):
        for _ in itertools.islice(loader, 2):  # before the bad sample
            pass


def left_early(loader: Any) -> None:
    for _ in loader:
        break


def never_begun(loader: Any) -> None:
    iter(loader)


def two_at_once(loader: Any) -> None:
    for _ in zip(range(1), loader, loader, strict=False):
        pass


def with_an_error(loader: Any) -> None:
    try:
        for _ in loader:
            pass
    except ValueError:
        pass


def outlived_by_its_iterator(loader: Any) -> Any:
    iterator = iter(loader)
    next(iterator)
    return iterator


LOOPS = [
    *(whole_epochs, left_early, never_begun, two_at_once, with_an_error),
    outlived_by_its_iterator,
]


@pytest.fixture
def no_collector() -> Iterator[None]:
    gc.collect()
    gc.disable()
    yield
    gc.enable()


def is_let_go(loader_class: Any, data: Any, loop: Callable[[Any], Any], **options: Any) -> bool:
    dataset = data()
    held = weakref.ref(dataset)
    loader = loader_class(dataset, 2, **options)
    del dataset
    kept = loop(loader)
    del loader
    if kept is not None:
        assert held() is not None
        next(kept)
        del kept
    return held() is None


@pytest.mark.usefixtures("no_collector")
@pytest.mark.filterwarnings("ignore:antifreeze. two loops share this loader")
@pytest.mark.parametrize("loop", LOOPS)
@pytest.mark.parametrize("data", [Samples, Stream])
@pytest.mark.parametrize(
    "options",
    [{}, {"num_workers": 1}, {"num_workers": 1, "persistent_workers": True}],
    ids=["no workers", "a worker", "a persistent worker"],
)
def test_the_dataset_is_let_go_of_when_torch_lets_go_of_it(
    loop: Callable[[Any], Any], data: Any, options: dict[str, Any]
) -> None:
    theirs = is_let_go(TorchLoader, data, loop, **options)
    assert theirs or loop in (two_at_once, with_an_error)  # it may need the collector for those
    for randomness in ("sample", "torch"):
        ours = is_let_go(DataLoader, data, loop, randomness=randomness, **options)
        assert ours or not theirs
