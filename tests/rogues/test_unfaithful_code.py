"""Code that would see something else in a clean process is not sent there."""

from __future__ import annotations

import dataclasses
import logging
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from antifreeze import DataLoader

from .clean import another_thread


class Transform:
    def __call__(self, number: int) -> int:
        return number


class Flip(Transform):
    def __call__(self, number: int) -> int:
        return -number


class Scale(Transform):
    def __call__(self, number: int) -> int:
        return 10 * number


class Node:
    pass


class Numbers:
    def __init__(self) -> None:
        self.nodes = [Node() for _ in range(6)]
        self.labels = {id(node): place for place, node in enumerate(self.nodes)}
        self.step, self.count = self.counter()

    def __len__(self) -> int:
        return 6

    @staticmethod
    def counter() -> tuple[Callable[[], None], Callable[[], int]]:
        steps = 0

        def step() -> None:
            nonlocal steps
            steps += 1

        def count() -> int:
            return steps

        return step, count


class ByAddress(Numbers):
    def __getitem__(self, index: int) -> int:
        return self.labels.get(id(self.nodes[index]), -1)


class ByHash(Numbers):
    def __getitem__(self, index: int) -> int:
        return hash(f"name {index}") % 1000


class BySubclasses(Numbers):
    def __getitem__(self, index: int) -> int:
        for transform in Transform.__subclasses__():
            index = transform()(index)
        return index


class ByClosures(Numbers):
    def __getitem__(self, index: int) -> int:
        self.step()
        return self.count()


class ByAddressInside(Numbers):
    """In code of its own: a lambda, a function inside, a comprehension (until Python 3.12)."""

    def __getitem__(self, index: int) -> int:
        return (lambda: self.labels.get(id(self.nodes[index]), -1))()


class ByHashInside(Numbers):
    def __getitem__(self, index: int) -> int:
        return sum(hash(word) % 1000 for word in ("cat", f"name {index}"))


class BySubclassesInside(Numbers):
    def __getitem__(self, index: int) -> int:
        return sum([len(kind.__subclasses__()) for kind in (Transform,)])


@dataclasses.dataclass(slots=True)
class Item:
    number: int


class Private:
    __slots__ = ("__hidden", "shown")

    def __init__(self, number: int) -> None:
        self.__hidden, self.shown = number, number

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Private) and self.__hidden == other.__hidden


class More(Private):
    __slots__ = "more"


class Slotted:
    def __len__(self) -> int:
        return 6

    def __getitem__(self, index: int) -> Any:
        more = More(index)
        more.more = [index]
        return [Item(index), Private(index), more]


def as_it_is(samples: list[Any]) -> list[Any]:
    return samples


KINDS = [
    ByAddress,
    ByHash,
    BySubclasses,
    ByClosures,
    ByAddressInside,
    ByHashInside,
    BySubclassesInside,
]


@pytest.fixture
def threads() -> Iterator[None]:
    """Another thread: a reason for a clean process."""
    with another_thread():
        yield


@pytest.mark.usefixtures("threads")
@pytest.mark.parametrize("kind", KINDS)
def test_it_is_forked_and_sees_what_it_would_without_workers(kind: Any) -> None:
    here = [batch.tolist() for batch in DataLoader(kind(), 3)]
    assert [batch.tolist() for batch in DataLoader(kind(), 3, num_workers=1)] == here


@pytest.mark.usefixtures("threads")
def test_objects_with_slots_come_back_from_a_clean_process(
    caplog: pytest.LogCaptureFixture,
) -> None:
    with caplog.at_level(logging.WARNING, "antifreeze"):
        loader = DataLoader(Slotted(), 3, num_workers=1, collate_fn=as_it_is)
        batches = list(loader)
    assert caplog.messages == []  # it was sent
    assert batches == [[Slotted()[index] for index in range(first, first + 3)] for first in (0, 3)]
    assert batches[1][2][2].more == [5]
