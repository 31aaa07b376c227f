"""Objects that pickle sends as less than they are: they arrive whole, or workers are forked."""

from __future__ import annotations

import collections
import contextvars
import ctypes
import dataclasses
import datetime
import decimal
import functools
import importlib
import inspect
import math
import weakref
from typing import Any

import numpy as np
import pytest

from antifreeze import DataLoader
from antifreeze.errors import TransportFailed

from .clean import Asked, another_thread, ask


def forked(thing: Any, question: Any, caplog: pytest.LogCaptureFixture) -> Any:
    """Return what a worker answers that must be forked, and what is said about it."""
    with another_thread():
        loader: DataLoader[Any] = DataLoader(
            Asked(thing, question),
            None,
            num_workers=1,
            collate_fn=lambda row: row,
        )
        first, _ = list(loader)
    (text,) = [record.getMessage() for record in caplog.records if record.name == "antifreeze"]
    return first, text


class Thing:
    def __init__(self, value: int) -> None:
        self.value = value


KEPT = [Thing(2), Thing(3)]


WEAK: dict[str, Any] = {
    "WeakSet": lambda: weakref.WeakSet(KEPT),
    "WeakKeyDictionary": lambda: weakref.WeakKeyDictionary(dict.fromkeys(KEPT, 1)),
    "WeakValueDictionary": lambda: weakref.WeakValueDictionary(enumerate(KEPT)),
    "ProxyType": lambda: weakref.proxy(KEPT[0]),
}


@pytest.mark.parametrize("kind", WEAK)
def test_what_only_weak_references_lead_to_forces_a_fork(
    kind: str, caplog: pytest.LogCaptureFixture
) -> None:
    thing = WEAK[kind]()

    def question(there: Any) -> int:
        return there.value if kind == "ProxyType" else len(there)

    answer, text = forked(thing, question, caplog)
    assert answer == 2 and "dataset.thing" in text


def test_a_weak_set_is_an_error_in_advance_under_spawn() -> None:
    asked: Any = Asked(weakref.WeakSet(KEPT), len)
    with pytest.raises(TransportFailed, match=r"dataset\.thing is a WeakSet"):
        list(DataLoader(asked, None, num_workers=1, multiprocessing_context="spawn"))


def test_empty_weak_containers_arrive() -> None:
    things = [weakref.WeakSet(), weakref.WeakKeyDictionary(), weakref.WeakValueDictionary()]

    def question(there: Any) -> list[Any]:
        there[0].add(KEPT[0])
        there[1][KEPT[0]] = there[2]["a"] = KEPT[0]
        return [(type(each).__name__, len(each)) for each in there]

    assert [length for _, length in ask(things, question)] == [1, 1, 1]


class Proxy:
    """Looks its target up in an attribute of its own."""

    def __init__(self, name: str) -> None:
        self.__dict__["name"] = name

    def __getattr__(self, attribute: str) -> Any:
        return getattr(importlib.import_module(self.name), attribute)


class Guarded:
    __slots__ = ("__dict__", "inner")

    def __init__(self) -> None:
        self.inner, self.number = {"a": 1}, 7

    def __getattribute__(self, attribute: str) -> Any:
        of_any = object.__getattribute__
        return 10 * of_any(self, "number") if attribute == "shown" else of_any(self, attribute)

    def __getattr__(self, attribute: str) -> Any:
        return self.inner[attribute]


class Config(dict[str, Any]):
    __getattr__ = dict.__getitem__


def test_a_proxy_is_not_asked_before_it_is_whole() -> None:
    config = Config(a=Config(b=5))
    config.__dict__["note"] = "n"
    things = [Proxy("math"), Guarded(), config]

    def question(there: Any) -> list[Any]:
        proxy, guarded, config = there
        return [proxy.gcd(12, 18), guarded.a, guarded.shown, config.a.b, config.__dict__]

    assert ask(things, question) == [6, 1, 70, 5, {"note": "n"}]


@functools.singledispatch
def told(thing: object) -> str:
    return "something"


@told.register
def _(thing: int) -> str:
    return "a number"


class Told:
    @functools.singledispatchmethod
    def of(self, thing: object) -> str:
        return "something"

    @of.register
    def _(self, thing: int) -> str:
        return f"a number for a {type(self).__name__}"


@pytest.mark.parametrize("context", [None, "spawn"])
def test_functions_keep_what_was_registered_later(context: str | None) -> None:
    told.register(Thing, lambda thing: f"thing {thing.value}")
    told.note = told
    inspect_like = functools.singledispatch(len)
    things = [told, KEPT[0], Told(), inspect_like]

    def question(there: Any) -> list[Any]:
        function, thing, method, _ = there
        return [
            *(function(each) for each in (thing, 1, "text", True)),
            *(method.of(each) for each in (1, "text")),
            function.note is told and function.__name__,
        ]

    expected = ["thing 2", "a number", "something", "a number"]
    expected += ["a number for a Told", "something", "told"]
    if context is None:
        assert ask(things, question) == expected
    else:
        asked: Any = Asked(things, question)
        loader: Any = DataLoader(
            asked, None, num_workers=1, multiprocessing_context=context, collate_fn=list
        )
        assert next(iter(loader)) == expected


def test_sentinels_of_libraries_arrive_as_themselves() -> None:
    things = [dataclasses.MISSING, inspect.Parameter.empty, dataclasses.KW_ONLY, object()]
    things.append(functools._initial_missing)

    def question(there: Any) -> list[bool]:
        return [
            there[0] is dataclasses.MISSING,
            there[1] is inspect.Parameter.empty,
            there[2] is dataclasses.KW_ONLY,
            type(there[3]) is object,
            there[4] is functools._initial_missing,
        ]

    assert ask(things, question) == [True] * 5


MODE: contextvars.ContextVar[Any] = contextvars.ContextVar("mode", default="usual")
UNSET: contextvars.ContextVar[Any] = contextvars.ContextVar("unset")


@pytest.mark.parametrize("context", [None, "spawn"])
def test_context_variables_have_the_value_that_the_program_has_set(context: str | None) -> None:
    def question(there: Any) -> list[Any]:
        fresh = contextvars.Context()
        return [MODE.get(), fresh.run(MODE.get), UNSET.get("none"), there is MODE]

    def run() -> Any:
        MODE.set(["set", Thing])
        if context is None:
            return ask(MODE, question)
        asked: Any = Asked(MODE, question)
        spawned: Any = DataLoader(
            asked, None, num_workers=1, multiprocessing_context=context, collate_fn=list
        )
        return next(iter(spawned))

    mode, usual, unset, same = contextvars.copy_context().run(run)
    assert mode[0] == "set" and (usual, unset, same) == ("usual", "none", True)


def test_arrays_and_pointers_of_ctypes_arrive() -> None:
    array = (ctypes.c_int * 10)(*range(10))
    things = [array, ctypes.c_int * 10, ctypes.POINTER(ctypes.c_double), (ctypes.c_char * 3)(b"a")]

    def question(there: Any) -> list[Any]:
        return [
            list(there[0]),
            type(there[0]) is there[1] is ctypes.c_int * 10,
            there[2] is ctypes.POINTER(ctypes.c_double),
            there[3].value,
        ]

    assert ask(things, question) == [list(range(10)), True, True, b"a"]


def test_precision_of_decimal_numbers_arrives() -> None:
    with decimal.localcontext(prec=5):
        assert ask(decimal.getcontext, lambda there: there().prec) == 5


class Registry:
    """Is pickled as its name."""

    __slots__ = ("__dict__", "__hidden")

    def __init__(self) -> None:
        self.items: dict[str, int] = {}
        self.__hidden: list[int] = []

    def hidden(self) -> list[int]:
        return self.__hidden

    def __reduce__(self) -> str:
        return "REGISTRY"


REGISTRY = Registry()


class NamedText(str):
    """Is pickled as its name, and more than a plain object."""

    def __reduce__(self) -> str:
        return "NAMED_TEXT"


NAMED_TEXT = NamedText("text")


def test_an_object_that_pickle_finds_by_its_name_is_what_the_program_has_there() -> None:
    REGISTRY.items["a"] = 1
    REGISTRY.hidden().append(2)
    try:
        answer = ask(
            REGISTRY, lambda there: (there.items, there.hidden(), there is REGISTRY, [there])
        )
        assert answer[:3] == ({"a": 1}, [2], True)
        assert answer[3] == [REGISTRY]  # by its name again
    finally:
        REGISTRY.items.clear()


def test_an_object_found_by_its_name_that_cannot_be_made_anew_forces_a_fork(
    caplog: pytest.LogCaptureFixture,
) -> None:
    answer, text = forked(NAMED_TEXT, str, caplog)
    assert answer == "text" and "dataset.thing is a NamedText" in text


def test_a_float_that_is_no_number_is_the_same_object_where_it_was() -> None:
    own = float("nan")
    things = [1.0, np.nan, math.nan, own, own, float("inf"), math.inf]

    def question(there: Any) -> list[bool]:
        return [
            there[1] is np.nan and np.nan in there,
            there[2] is math.nan,
            there[3] is there[4] and there[3] is not np.nan,
            there[5] == there[6] == math.inf,
            there[6] is math.inf,
        ]

    assert ask(things, question) == [True] * 5


class Failed(Exception):
    def __init__(self, code: int) -> None:
        super().__init__(f"code {code}")
        self.code = code

    def __reduce__(self) -> Any:
        return Failed, (self.code,)


class Words(collections.Counter[str]):
    note = ""


class Groups(collections.defaultdict[str, list[int]]):
    note = ""


class Day(datetime.datetime):
    __slots__ = ("__note", "tag")

    def set(self, note: str) -> Day:
        self.__note = note
        return self

    def get(self) -> str:
        return self.__note


class Price(decimal.Decimal):
    note = ""


def raised() -> Exception:
    try:
        try:
            raise KeyError("inner")
        except KeyError as error:
            raise Failed(3) from error
    except Failed as error:
        error.add_note("seen")
        return error


def test_exceptions_keep_why_they_were_raised() -> None:
    quiet, handled = ValueError("a"), ValueError("b")
    quiet.__suppress_context__ = True
    handled.__context__ = handled.__cause__ = quiet
    handled.__suppress_context__ = False

    def question(there: Any) -> list[Any]:
        error, quiet, handled = there
        return [
            (error.code, repr(error.__cause__), error.__context__ is error.__cause__),
            (error.__suppress_context__, getattr(error, "__notes__", None)),
            (quiet.__suppress_context__, quiet.__cause__),
            (handled.__context__ is quiet, handled.__suppress_context__),
        ]

    things = [raised(), quiet, handled]
    told = ask(things, question)
    assert told == question(things)


def test_subclasses_of_the_standard_librarys_types_keep_their_attributes() -> None:
    words, groups, price = Words("aab"), Groups(list, a=[1]), Price("1.5")
    words.note = groups.note = price.note = "n"
    things = [words, groups, price, Day(2026, 1, 2).set("n")]

    def question(there: Any) -> list[Any]:
        words, groups, price, day = there
        notes = [words.note, groups.note, price.note, day.get(), hasattr(day, "tag")]
        return [notes, words["a"], groups["a"] + groups["b"], float(price), day.day]

    assert ask(things, question) == [["n", "n", "n", "n", False], 2, [1], 1.5, 2]
