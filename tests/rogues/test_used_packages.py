"""Which packages the code of workers uses, as far as its bytecode says."""

from __future__ import annotations

import fractions
import functools
from typing import Any

import numpy
import pytest

from antifreeze._processes.fork_safety.reachable_objects import reached_from


class Row:
    """Of a dataset: nothing is used but what a method names."""

    def __init__(self) -> None:
        import polars as made_with  # noqa: F401

    def __getitem__(self, index: int) -> int:
        return index

    def never_called(self) -> None:
        import grpc  # noqa: F401


class Late(Row):
    def __getitem__(self, index: int) -> int:
        import tokenizers  # noqa: F401

        return index


class Calls(Row):
    def __getitem__(self, index: int) -> int:
        self.never_called()
        return index


def helper() -> Any:
    return numpy.zeros(2)


def through() -> Any:
    return [helper() for _ in range(2)]


class ByFunction(Row):
    def __getitem__(self, index: int) -> int:
        return len(through()) + index


class Holds(Row):
    def __init__(self, held: Any) -> None:
        self.held = held


class Makes(Row):
    def __getitem__(self, index: int) -> Any:
        return Row()


@pytest.mark.parametrize(
    ("dataset", "package", "used"),
    [
        (Holds(1), "polars", False),  # used to make it, and that was before
        (Holds(1), "grpc", False),
        (Holds(1), "numpy", False),  # imported beside
        (Holds(Calls.__new__(Calls)), "grpc", True),
        (Late.__new__(Late), "tokenizers", True),
        (Calls.__new__(Calls), "grpc", True),
        (ByFunction.__new__(ByFunction), "numpy", True),
        (Makes.__new__(Makes), "polars", True),
        (Holds(fractions.Fraction(1)), "fractions", True),  # an object of it is there
        (Holds(functools.partial(helper)), "numpy", True),
        (Holds([{"transform": lambda: numpy.ones(1)}]), "numpy", True),
    ],
)
def test_a_package_is_used_if_code_that_workers_run_names_it(
    dataset: Any, package: str, used: bool
) -> None:
    assert (package in reached_from({"dataset": dataset}).packages) is used


def test_collate_fn_counts_too() -> None:
    found = reached_from({"dataset": Holds(1), "collate_fn": helper}).packages
    assert "numpy" in found
