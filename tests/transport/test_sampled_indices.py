"""Batches of indices are copied when the sampler yields them."""

from __future__ import annotations

import array
import threading
from collections import deque, namedtuple
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest
import torch
from torch.utils.data import DataLoader as TorchLoader

from antifreeze import DataLoader
from antifreeze._transport.sampled_indices import own_copy

Pair = namedtuple("Pair", "rows name")


@dataclass
class Rows:
    numbers: list[int]

    def __iter__(self) -> Iterator[int]:
        return iter(self.numbers)


class ManyRows(list[int]):
    pass


SAMPLES, BATCH = 60, 4


class Same:
    def __len__(self) -> int:
        return SAMPLES

    def __getitem__(self, index: Any) -> int:
        return int(index[0] if isinstance(index, list | tuple) else index)


class Refilled:
    """Yields the same object for every batch, filled again each time."""

    def __init__(self, make: Callable[[], Any], fill: Callable[[Any, list[int]], None]) -> None:
        self.make, self.fill = make, fill

    def __len__(self) -> int:
        return SAMPLES // BATCH

    def __iter__(self) -> Iterator[Any]:
        held = self.make()
        for first in range(0, SAMPLES, BATCH):
            self.fill(held, list(range(first, first + BATCH)))
            yield held
        self.fill(held, [0] * BATCH)


def _in_place(held: Any, numbers: list[int]) -> None:
    for place, number in enumerate(numbers):
        held[place] = number


def _nested(held: Any, numbers: list[int]) -> None:
    for place, number in enumerate(numbers):
        held[place][0] = number


def _renew(held: Any, numbers: list[int]) -> None:
    held.clear()
    held.extend(numbers)


def _keys(held: Any, numbers: list[int]) -> None:
    held.clear()
    held.update(dict.fromkeys(numbers))


def _in_object(held: Any, numbers: list[int]) -> None:
    held.numbers[:] = numbers


FORMS: dict[str, tuple[Callable[[], Any], Callable[[Any, list[int]], None]]] = {
    "a list": (lambda: [0] * BATCH, _in_place),
    "a list that is emptied": (list, _renew),
    "a list of lists": (lambda: [[0] for _ in range(BATCH)], _nested),
    "a tuple of lists": (lambda: tuple([0] for _ in range(BATCH)), _nested),
    "an array": (lambda: np.zeros(BATCH, dtype=np.int64), _in_place),
    "an array of objects": (lambda: np.zeros(BATCH, dtype=object), _in_place),
    "a view of an array": (lambda: np.zeros(2 * BATCH, dtype=np.int32)[::2], _in_place),
    "a list of arrays": (lambda: [np.zeros((), np.int64) for _ in range(BATCH)], None),
    "a tensor": (lambda: torch.zeros(BATCH, dtype=torch.int64), _in_place),
    "a list of views of a tensor": (lambda: list(torch.zeros(BATCH, dtype=torch.int64)), None),
    "an array.array": (lambda: array.array("q", [0] * BATCH), _in_place),
    "a deque": (deque, _renew),
    "a list of one's own": (ManyRows, _renew),
    "a dict": (dict, _keys),
    "an object": (lambda: Rows([]), _in_object),
}


def _whole(held: Any, numbers: list[int]) -> None:
    for each, number in zip(held, numbers, strict=True):
        each[...] = number


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("workers", [1, 2])
def test_a_sampler_may_fill_what_it_yields_again(form: str, workers: int) -> None:
    make, fill = FORMS[form]
    sampler = Refilled(make, fill or _whole)
    wanted = [batch.tolist() for batch in TorchLoader(Same(), batch_sampler=sampler)]
    assert [number for batch in wanted for number in batch] == list(range(SAMPLES))
    loader = DataLoader(Same(), batch_sampler=sampler, num_workers=workers)
    assert [batch.tolist() for batch in loader] == wanted


def test_a_sampler_without_batches_may_do_so_as_well() -> None:
    held = [0]

    def numbers() -> Iterator[list[int]]:
        for number in range(SAMPLES):
            held[0] = number
            yield held

    for size in (None, BATCH):
        one = TorchLoader(Same(), size, sampler=numbers())
        wanted = [np.asarray(batch).tolist() for batch in one]
        other = DataLoader(Same(), size, sampler=numbers(), num_workers=2)
        assert [np.asarray(batch).tolist() for batch in other] == wanted


def test_a_copy_has_the_type_and_the_value() -> None:
    things = [
        [1, 2], (1, [2]), {"a": [1]}, Pair([1], "b"), np.arange(3), torch.arange(3), range(5), 7,
        "name", None, np.int64(3), [np.int64(3), "x"], ManyRows([1]), slice(2), Rows([4]),
    ]  # fmt: skip
    for thing in things:
        copied = own_copy(thing)
        assert type(copied) is type(thing)
        assert repr(copied) == repr(thing)


def test_what_cannot_be_copied_is_left_as_it_is() -> None:
    loop: list[Any] = []
    loop.append(loop)
    for thing in (threading.Lock(), loop):
        assert own_copy(thing) is thing
