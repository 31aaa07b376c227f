"""Code that would see something else in a clean process is not sent there."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from antifreeze import DataLoader


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


@pytest.fixture
def threads() -> Iterator[None]:
    """Another thread: a reason for a clean process."""
    end = threading.Event()
    thread = threading.Thread(target=end.wait)
    thread.start()
    yield
    end.set()
    thread.join()


@pytest.mark.usefixtures("threads")
@pytest.mark.parametrize("kind", [ByAddress, ByHash, BySubclasses, ByClosures])
def test_it_is_forked_and_sees_what_it_would_without_workers(kind: Any) -> None:
    here = [batch.tolist() for batch in DataLoader(kind(), 3)]
    assert [batch.tolist() for batch in DataLoader(kind(), 3, num_workers=1)] == here
