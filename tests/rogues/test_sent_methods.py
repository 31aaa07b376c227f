"""Methods as attributes: bound in a worker to what they are bound to in the program."""

from __future__ import annotations

import collections
import functools
import random
import types
from random import randint
from typing import Any

import numpy as np
import pytest
import torch

from antifreeze import DataLoader

from .clean import Asked, ask


def twice(method: Any) -> Any:
    def inner(self: Any) -> str:
        return f"twice {method(self)}"

    return inner


class Base:
    def load(self) -> str:
        return "base"

    @classmethod
    def kind(cls) -> str:
        return f"base of {cls.__name__}"


class Sub(Base):
    def __init__(self) -> None:
        self.plain, self.of_class = super().load, super().kind
        self.readers = {"png": self.__png}
        self.handler = self.decorated

    def load(self) -> str:
        return "sub"

    @classmethod
    def kind(cls) -> str:
        return "sub"

    def __png(self) -> str:
        return "png"

    @twice
    def decorated(self) -> str:
        return "decorated"


class Net(torch.nn.Module):
    def forward(self, number: int) -> int:
        return number


def other_forward(self: Any, number: int) -> int:
    assert isinstance(self, Net)
    return number + 100


class Table(dict[str, str]):
    def __init__(self, **entries: str) -> None:
        super().__init__(**entries)
        self.plain_get = super().get

    def get(self, key: str, default: Any = None) -> Any:
        return "of the subclass"


@pytest.mark.parametrize("context", [None, "spawn"])
def test_a_method_bound_by_hand_is_that_method(context: str | None) -> None:
    patched, described = Net(), Net()
    patched.forward = types.MethodType(other_forward, patched)
    described.forward = other_forward.__get__(described)
    things = [patched, described, Sub()]

    def question(there: Any) -> list[Any]:
        patched, described, sub = there
        bound = [sub.plain(), sub.of_class(), sub.readers["png"](), sub.handler()]
        return [patched(1), described(1), patched.forward.__self__ is patched, *bound]

    expected = [101, 101, True, "base", "base of Sub", "png", "twice decorated"]
    if context is None:
        assert ask(things, question) == expected
    else:
        asked: Any = Asked(things, question)
        loader: Any = DataLoader(
            asked, None, num_workers=1, multiprocessing_context=context, collate_fn=list
        )
        assert next(iter(loader)) == expected


def test_methods_written_in_c_stay_bound() -> None:
    table, items = Table(a="of the dict"), [1]
    things = {
        "items": items,
        "append": items.append,
        "len": items.__len__,
        "get": table.plain_get,
        "fromkeys": collections.OrderedDict.fromkeys,
        "of its metaclass": int.mro,
        "integers": np.random.default_rng(1).integers,
        "sum": torch.ones(3).sum,
        "upper": str.upper,
    }

    def question(there: Any) -> list[Any]:
        there["append"](2)
        return [
            len(there["items"]) == there["len"](),
            there["get"]("a"),
            type(there["fromkeys"]("a")).__name__,
            there["of its metaclass"](),
            0 <= there["integers"](1000) < 1000,
            float(there["sum"]()),
            there["upper"]("x"),
        ]

    expected = [True, "of the dict", "OrderedDict", [int, object], True, 3.0, "X"]
    assert ask(things, question) == expected


def test_the_generators_of_this_process_are_those_of_the_worker() -> None:
    things = [random.random, np.random.rand, torch.default_generator]

    def question(there: Any) -> list[bool]:
        return [
            there[0].__self__ is random._inst,
            there[1].__self__ is np.random.mtrand._rand,
            there[2] is torch.default_generator,
            randint.__self__ is random._inst,
        ]

    assert ask(things, question) == [True] * 4


def test_partial_functions_keep_their_attributes() -> None:
    part = functools.partial(int, base=2)
    part.note = "n"
    assert ask(part, lambda there: (there("11"), there.note)) == (3, "n")
