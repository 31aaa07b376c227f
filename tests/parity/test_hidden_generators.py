"""Generators where people keep them without a thought: in classes, functions, methods and sets."""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch

from antifreeze import DataLoader
from antifreeze._loading.rng_adapters import own_generators


class Draws:
    def __init__(self, draw: Callable[[], float]) -> None:
        self.draw = draw

    def __len__(self) -> int:
        return 16

    def __getitem__(self, index: int) -> float:
        return float(self.draw())


class FromSet:
    def __init__(self) -> None:
        self.held = {random.Random(3), "a word"}

    def __call__(self) -> float:
        return sum(it.random() for it in self.held if isinstance(it, random.Random))


def by_default(*, rng: Any = random.Random(3)) -> float:  # noqa: B008
    return float(rng.random())


class ByDefault:
    def apply(self, rng: Any = np.random.default_rng(3)) -> float:  # noqa: B008
        return float(rng.random())


class ByClass:
    rng = torch.Generator().manual_seed(3)

    def __call__(self) -> float:
        return float(torch.rand((), generator=self.rng, dtype=torch.float64))


class OfClass(Draws):
    """Has a generator that all of its kind share."""

    rng = np.random.default_rng(3)

    def __getitem__(self, index: int) -> float:
        return float(self.rng.random())


class OfBase(OfClass):
    pass


class Calls(Draws):
    """Calls a function of its module that has one."""

    def __getitem__(self, index: int) -> float:
        return by_default()


HIDDEN: dict[str, Callable[[], Draws]] = {
    "built-in method": lambda: Draws(random.Random(3).random),
    "numpy's method": lambda: Draws(np.random.default_rng(3).random),
    "set": lambda: Draws(FromSet()),
    "default of a function": lambda: Draws(by_default),
    "default of a method": lambda: Draws(ByDefault().apply),
    "class of a transform": lambda: Draws(ByClass()),
    "class": lambda: OfClass(float),
    "base class": lambda: OfBase(float),
    "default of a function that is called": lambda: Calls(float),
}


@pytest.mark.parametrize("where", HIDDEN)
def test_every_sample_draws_its_own_numbers(where: str) -> None:
    def numbers(workers: int) -> list[float]:
        torch.manual_seed(1)
        loader = DataLoader(HIDDEN[where](), 4, num_workers=workers)
        return [value for _ in range(2) for batch in loader for value in batch.tolist()]

    drawn = numbers(2)
    assert len(set(drawn)) == 32
    assert drawn == numbers(0)


def test_they_are_named_by_the_class_or_function_that_has_them() -> None:
    paths = [path for path, _ in own_generators((OfBase(float),))]
    assert paths == ["OfClass.rng", f"{__name__}.by_default.__kwdefaults__['rng']"]
