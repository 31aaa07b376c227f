"""Classes that their metaclass would not make again, seen by workers of a clean process."""

from __future__ import annotations

import abc
import typing
from typing import Any

from .clean import ask


class Table(type):
    def __new__(mcs, name: str, bases: Any, content: Any, *, table: str) -> Any:
        return super().__new__(mcs, name, bases, {**content, "table": table})

    def __init__(cls, name: str, bases: Any, content: Any, *, table: str) -> None:
        super().__init__(name, bases, content)


class Row(metaclass=Table, table="rows"):
    pass


class Frozen(type):
    def __setattr__(cls, name: str, value: Any) -> None:
        raise AttributeError("constants cannot be changed")


class Constants(metaclass=Frozen):
    PI = 3


class Labelled(abc.ABCMeta):
    def __new__(mcs, name: str, bases: Any, content: Any) -> Any:
        if bases and "label" not in content:
            raise TypeError(f"{name} needs a label")
        return super().__new__(mcs, name, bases, content)


class Operation(metaclass=Labelled):
    @abc.abstractmethod
    def run(self) -> int: ...


class Add(Operation):
    label = "add"

    def run(self) -> int:
        return 1


@Operation.register
class Foreign:
    pass


class Item(typing.TypedDict):
    x: int


class Part(Item, total=False):
    y: int


Made = typing.TypedDict("Made", {"a": int})  # noqa: UP013


def test_classes_arrive_past_the_code_of_their_metaclass() -> None:
    def question(kinds: Any) -> Any:
        row, constants, add, operation = kinds
        abstract = sorted(operation.__abstractmethods__), sorted(add.__abstractmethods__)
        of_kind = issubclass(add, operation), issubclass(Foreign, operation)
        return (
            row.table,
            constants.PI,
            add().run(),
            add.label,
            abstract,
            of_kind,
            type(row).__name__,
        )

    expected = "rows", 3, 1, "add", (["run"], []), (True, True), "Table"
    assert ask([Row, Constants, Add, Operation], question) == expected


def test_typed_dicts_arrive_with_their_keys() -> None:
    def question(_: None) -> Any:
        made = Item(x=1), Part(x=1, y=2), Made(a=3)
        return made, sorted(Part.__required_keys__), sorted(Part.__optional_keys__)

    assert ask(None, question) == (({"x": 1}, {"x": 1, "y": 2}, {"a": 3}), ["x"], ["y"])


class Wrong(Exception):
    def __init__(self, place: int, why: str) -> None:
        super().__init__(f"{place}: {why}")
        self.place = place


class Sealed(dict[str, int]):
    def __setitem__(self, name: str, value: int) -> None:
        raise TypeError("it is sealed")


class Interval(tuple[int, ...]):
    def __new__(cls, low: int, high: int) -> Interval:
        return super().__new__(cls, (low, high))


class Doubled(int):
    def __new__(cls, number: int) -> Doubled:
        return super().__new__(cls, 2 * number)


class Names(list[str]):
    def __init__(self, *names: str) -> None:
        super().__init__()
        self.seen = len(names)
        self.extend(names)

    def extend(self, names: Any) -> None:
        super().extend(f"{name}{self.seen}" for name in names)


def test_objects_arrive_as_they_are_not_made_once_more_by_their_class() -> None:
    wrong = Wrong(1, "empty")
    wrong.place = 5

    def question(things: Any) -> Any:
        error, sealed, interval, doubled, names = things
        plain = [dict(sealed), tuple(interval), int(doubled), list(names), names.seen]
        return error.args, error.place, [type(each).__name__ for each in things], plain

    things = [wrong, Sealed(a=1), Interval(1, 2), Doubled(3), Names("a", "b")]
    kinds = ["Wrong", "Sealed", "Interval", "Doubled", "Names"]
    plain = [{"a": 1}, (1, 2), 6, ["a2", "b2"], 2]
    assert ask(things, question) == (("1: empty",), 5, kinds, plain)
