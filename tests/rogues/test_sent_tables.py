"""Tables keyed by objects of the program's own, found again by workers of a clean process."""

from __future__ import annotations

import collections
import dataclasses
import enum
import functools
import importlib
import random
import time
from pathlib import Path
from typing import Any

import pytest

from antifreeze import DataLoader
from antifreeze._processes.replication import job_pickler
from antifreeze.errors import TransportFailed

from . import random_tables
from .clean import Asked, another_thread, ask


@dataclasses.dataclass(frozen=True)
class Label:
    name: str

    def number(self) -> int:
        return NUMBERS.get(self, -1)

    def is_known(self) -> bool:
        return self in KNOWN and (self, 1) in PAIRS

    @functools.cache  # noqa: B019
    def settings(self) -> dict[str, int]:
        return {}


NUMBERS = {Label("cat"): 0, Label("dog"): 1}
KNOWN = frozenset(NUMBERS)
PAIRS = {(Label("cat"), 1), (Label("dog"), 1)}


class Color:
    NAMES: dict[Color, str]
    COUNTS: collections.Counter[Color]

    def __init__(self, red: int) -> None:
        self.red = red

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Color) and self.red == other.red

    def __hash__(self) -> int:
        return hash(self.red)


Color.NAMES = {Color(1): "red"}
Color.COUNTS = collections.Counter([Color(1), Color(1)])


class Money(enum.Enum):
    EUR = "e"
    USD = "u"

    def rate(self) -> float:
        return RATES.get(self, 0.0)

    def __hash__(self) -> int:
        return hash(self.value)


RATES = {Money.EUR: 1.0, Money.USD: 1.1}


def test_keys_are_found_by_methods_of_their_own_class() -> None:
    def question(label: Label) -> Any:
        colors = Color.NAMES.get(Color(1)), Color.COUNTS[Color(1)]
        return label.number(), Label("dog").number(), label.is_known(), colors, Money.USD.rate()

    assert ask(Label("cat"), question) == (0, 1, True, ("red", 2), 1.1)


def test_what_a_cached_method_has_returned_is_found_there() -> None:
    Label("cat").settings()["rate"] = 1
    assert ask(Label("cat"), lambda label: label.settings()) == {"rate": 1}
    Label.settings.cache_clear()


TABLES = 12  # in one module


def _differences(folder: Path, seed: int) -> list[str]:
    """Return what workers of a clean process see otherwise, of a module with random tables."""
    dice = random.Random(seed)
    lines, looks = ["import collections, dataclasses, enum, functools, sys, types, typing"], []
    for place in range(TABLES):
        text, look = random_tables.table(f"m{place}", dice)
        lines.append(text)
        looks.append(f"lambda: {look}")
    name = f"tables{seed}"
    lines += [f"LOOKS = [{', '.join(looks)}]", "class Data:", "    def __len__(self):"]
    lines += [f"        return {TABLES}", "    def __getitem__(self, index):"]
    lines += ["        return str(LOOKS[index]())"]
    (folder / f"{name}.py").write_text("\n".join(lines))
    data = importlib.import_module(name).Data()
    clean: Any = DataLoader(data, None, num_workers=1, multiprocessing_context="forkserver")
    there = zip(lines[1:], [data[each] for each in range(TABLES)], list(clean), strict=False)
    return [f"{text}{here} is {other}" for text, here, other in there if here != other]


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.syspath_prepend(tmp_path)
    return tmp_path


def test_random_tables_have_their_keys(folder: Path) -> None:
    assert _differences(folder, 0) + _differences(folder, 1) == []


@pytest.mark.thorough
@pytest.mark.parametrize("first", range(100, 160, 20))
def test_more_random_tables_have_their_keys(folder: Path, first: int) -> None:
    for seed in range(first, first + 20):
        assert _differences(folder, seed) == []


class Node:
    name = ""

    def __init__(self, name: str) -> None:
        self.name = name
        self.near: set[Node] = set()

    def __hash__(self) -> int:
        return hash(self.name)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Node) and self.name == other.name


class Graph:
    def __init__(self) -> None:
        first, second = Node("a"), Node("b")
        first.near.add(second)
        second.near.add(first)
        self.node = first


class Read:
    """Its hash reads what it has, and keeps nothing."""

    def __init__(self, name: str) -> None:
        self.name = name

    def __eq__(self, other: object) -> bool:
        return vars(self) == vars(other)

    def __hash__(self) -> int:
        return hash(tuple(sorted(self.__dict__.items())))


def test_a_hash_may_read_all_attributes() -> None:
    assert ask({Read("a"): 1}, lambda table: table[Read("a")]) == 1


def test_very_many_keys_take_not_much_longer_than_the_same_objects_in_a_list() -> None:
    objects = [Read(str(number)) for number in range(20_000)]
    took = {}
    for what, held in {"list": objects, "table": dict.fromkeys(objects, 0)}.items():
        began = time.process_time()
        job_pickler.pack_terms(Asked(held, len))
        took[what] = time.process_time() - began
    assert took["table"] < 5 * 4 * took["list"]  # two passes, each with a look at all


class Keeping:
    def __init__(self, name: str) -> None:
        self.name, self.number = name, 0

    def __hash__(self) -> int:
        self.number = self.number or hash(self.name)
        return self.number


class Rated:
    def __hash__(self) -> int:
        return len(ALL_RATED)


ALL_RATED: dict[Any, int] = {}
ALL_RATED[Rated()] = 1

REFUSED: dict[str, Any] = {
    "a set that is in one of its own keys": Graph,
    "Keeping.__hash__ keeps what it returns": lambda: {Keeping("a"): 1},
    "Rated.__hash__, which makes or finds keys": Rated,
}


@pytest.mark.parametrize("why", REFUSED)
def test_a_table_whose_keys_cannot_be_found_there_forces_a_fork(
    why: str, caplog: pytest.LogCaptureFixture
) -> None:
    asked: Any = Asked(REFUSED[why](), lambda thing: 1)
    with another_thread():
        assert list(DataLoader(asked, None, num_workers=1)) == [1, 1]
    (text,) = [record.getMessage() for record in caplog.records if record.name == "antifreeze"]
    path = f"{__name__}.ALL_RATED" if why.startswith("Rated") else "dataset.thing"
    assert why in text and path in text


def test_a_table_in_its_own_key_is_an_error_with_its_path_where_no_fork_is_wanted() -> None:
    loader: Any = DataLoader(
        Asked(Graph(), len), None, num_workers=1, multiprocessing_context="forkserver"
    )
    with pytest.raises(TransportFailed, match=r"dataset\.thing\.node\.near.* its own keys"):
        list(loader)


class Late:
    """Its hash looks for an attribute by a name that no code shows."""

    TABLE: dict[Any, int]

    def __hash__(self) -> int:
        return hash(getattr(type(self), "TAB" + "LE", None) is None)


Late.TABLE = {Late(): 1}


def test_a_table_that_does_not_find_its_keys_there_is_an_error_not_another_value() -> None:
    loader: Any = DataLoader(
        Asked(Late(), lambda late: 1), None, num_workers=1, multiprocessing_context="forkserver"
    )
    with pytest.raises(Exception, match="a dict does not find its keys"):
        list(loader)
