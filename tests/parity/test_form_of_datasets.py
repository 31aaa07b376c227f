"""What is compared before an epoch is the same only if a search would find the same generators."""

from __future__ import annotations

import contextlib
import copy
import functools
import random
import sys
import weakref
from collections import deque
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch.utils.data import default_collate

from antifreeze._loading.rng_search import generators_in
from antifreeze._loading.rng_search_cache import Form, Formless

from .test_kept_between_epochs import Thing, around, graphs

GLOBAL: Any = None


class Bare:
    """A class that holds nothing."""

    def plain(self, first: Any = 1) -> None: ...

    @property
    def simple(self) -> None: ...

    @staticmethod
    def loose() -> None: ...


class Open(Bare):
    """A class with an attribute, a default argument and more that a test may change."""

    held: Any = None

    def method(self, first: Any = None, *, second: Any = None) -> Any:
        return first, second

    @property
    def inner(self) -> None: ...

    @staticmethod
    def static(first: Any = 1) -> Any:
        return first


class Sub(Open):
    def __init__(self, inner: Any) -> None:
        self.under = inner
        self.numbers, self.name = [1, 2, 3], "a"


def at_home(first: Any = 1) -> Any:
    return first


class Pretends:
    """Says that it is what it holds."""

    def __init__(self, inner: Any) -> None:
        self.under = inner

    @property
    def __class__(self) -> Any:
        return type(self.under)


VALUES: tuple[Callable[[Any], Any], ...] = (
    lambda old: random.Random(7),
    lambda old: np.random.default_rng(7),
    lambda old: torch.Generator(),
    lambda old: 5,
    lambda old: None,
    lambda old: Thing(random.Random(7)),
    lambda old: Thing(5),
    lambda old: [random.Random(7)],
    lambda old: {"a": Thing(np.random.RandomState(7))},
    lambda old: around(random.Random(7)),
    lambda old: Pretends(random.Random(7)),
    lambda old: Sub(random.Random(7)),
    lambda old: copy.copy(old),
    lambda old: copy.deepcopy(old),
    lambda old: Thing(old),
    lambda old: [old, old],
)
Setter = Callable[[Callable[[Any], Any]], None]


def places_in(thing: Any, depth: int = 0) -> Iterator[Setter]:
    """Yield what changes something in an object, or in what it holds."""
    held: list[Any] = []
    if depth > 9 or isinstance(thing, str | int | float | torch.Tensor | type):
        return
    if thing is random._inst:  # everybody's
        return
    if isinstance(thing, list):
        for at, inner in enumerate(thing[:40]):
            held.append(inner)
            yield lambda make, at=at: thing.__setitem__(at, make(thing[at]))
        yield lambda make: thing.append(make(None))
        yield lambda make: thing.insert(0, make(None))
    if isinstance(thing, dict):
        for key, inner in thing.items():
            held.append(inner)
            yield lambda make, key=key: thing.update({key: make(thing[key])})
        yield lambda make: thing.update(new=make(None))
    if isinstance(thing, tuple | deque):
        held += thing
    if isinstance(thing, functools.partial):
        held += [thing.func, thing.args, thing.keywords]
    for cell in getattr(thing, "__closure__", None) or ():
        held.append(cell.cell_contents)
        yield lambda make, cell=cell: setattr(cell, "cell_contents", make(cell.cell_contents))
    if isinstance(thing, type(at_home)):
        yield lambda make: setattr(thing, "__defaults__", (make(1),))
        yield lambda make: setattr(thing, "__kwdefaults__", {"held": make(1)})
    names = [*getattr(thing, "__dict__", {}), *getattr(type(thing), "__slots__", ())]
    for name in names:
        with contextlib.suppress(AttributeError):
            held.append(getattr(thing, name))
            yield lambda make, name=name: setattr(thing, name, make(getattr(thing, name)))
    if hasattr(thing, "__dict__"):
        yield lambda make: setattr(thing, "new", make(None))
        yield lambda make: setattr(thing, "__dict__", {"other": make(None)})
    for inner in held:
        yield from places_in(inner, depth + 1)


def places_around() -> Iterator[Setter]:
    """Yield what changes classes and this module."""
    here = sys.modules[__name__]
    yield lambda make: setattr(Bare.plain, "__defaults__", (make(None),))
    yield lambda make: setattr(Bare.plain, "__kwdefaults__", {"second": make(None)})
    yield lambda make: setattr(Bare, "plain", around(make(None)))
    yield lambda make: setattr(Bare, "loose", staticmethod(around(make(None))))
    yield lambda make: setattr(Bare.loose, "__kwdefaults__", {"second": make(None)})
    yield lambda make: setattr(Bare, "simple", property(around(make(None))))
    yield lambda make: setattr(Open, "held", make(Open.held))
    yield lambda make: setattr(Open, "new", make(None))
    yield lambda make: setattr(Sub, "new", make(None))
    yield lambda make: setattr(Open.method, "__defaults__", (make(None),))
    yield lambda make: setattr(Open.method, "__kwdefaults__", {"second": make(None)})
    yield lambda make: setattr(Open, "method", around(make(None)))
    yield lambda make: setattr(Open, "static", staticmethod(around(make(None))))
    yield lambda make: setattr(Open.static, "__defaults__", (make(None),))
    yield lambda make: setattr(Open, "inner", property(around(make(None))))
    yield lambda make: setattr(here, "GLOBAL", make(here.GLOBAL))
    yield lambda make: setattr(here, "NEW_GLOBAL", make(None))
    yield lambda make: setattr(at_home, "__defaults__", (make(1),))
    yield lambda make: setattr(here, "at_home", around(make(1)))


@pytest.fixture
def as_it_was() -> Iterator[None]:
    yield
    back()


def back() -> None:
    here: Any = sys.modules[__name__]
    here.GLOBAL, here.at_home = None, AT_HOME
    vars(here).pop("NEW_GLOBAL", None)
    AT_HOME.__defaults__ = (1,)
    for kind, name, value in ORIGINAL:
        setattr(kind, name, value)
    Bare.plain.__defaults__, Bare.plain.__kwdefaults__ = (1,), None
    Bare.loose.__kwdefaults__ = None
    METHOD.__defaults__, METHOD.__kwdefaults__ = (None,), {"second": None}
    Open.static.__defaults__ = (1,)
    for kind in (Bare, Open, Sub):
        if "new" in vars(kind):
            delattr(kind, "new")


AT_HOME = at_home
METHOD = Open.method
ORIGINAL = [
    *((Open, name, vars(Open)[name]) for name in ("held", "method", "inner", "static")),
    *((Bare, name, vars(Bare)[name]) for name in ("plain", "simple", "loose")),
]
some_places = st.lists(
    st.tuples(st.integers(0, 10_000), st.sampled_from(VALUES)), min_size=1, max_size=3
)


@pytest.mark.usefixtures("as_it_was")
@settings(max_examples=800, deadline=None)
@given(graphs, some_places, st.booleans(), some_places)
def test_what_is_compared_is_the_same_only_if_a_search_finds_the_same(
    graph: Any, changes: Any, inside: bool, before: Any
) -> None:
    back()
    roots = (Sub(graph), at_home)

    def apply(some: Any, *, inside: bool) -> None:
        places = [*(places_in(roots[0]) if inside else places_around())]
        for number, make in some:
            with contextlib.suppress(AttributeError, TypeError, ValueError):
                places[number % len(places)](make)

    apply(before, inside=not inside)
    found = generators_in(roots)
    try:
        form = Form(roots)
    except Formless:
        return  # it is searched
    assert form.holds(roots)
    apply(changes, inside=inside)
    if form.holds(roots):
        assert [*map(id, generators_in(roots))] == [*map(id, found)]


def test_most_datasets_have_a_form_that_leaves_them_free_to_go() -> None:
    inner = Thing([1, Thing("a")])
    gone = weakref.ref(inner)
    root = Sub({"a": inner, "rng": random.Random(1)})
    form = Form((root, default_collate))
    root.numbers, root.name = [1, 2, 3, 4.0, "b"], "c"  # plain, as before
    assert form.holds((root, default_collate))
    root.under["rng"] = random.Random(1)
    assert not form.holds((root, default_collate))
    del root, inner
    assert gone() is None


def test_what_pretends_to_be_of_another_class_has_no_form() -> None:
    with pytest.raises(Formless):
        Form((Sub(Pretends(5)),))


@pytest.mark.usefixtures("as_it_was")
@pytest.mark.parametrize("make", VALUES)
def test_a_change_of_any_class_function_or_module_is_seen(make: Callable[[Any], Any]) -> None:
    for at in range(len([*places_around()])):
        back()
        roots = (Sub(5), at_home)
        found = generators_in(roots)
        form = Form(roots)
        assert form.holds(roots)
        [*places_around()][at](make)
        if form.holds(roots):
            assert [*map(id, generators_in(roots))] == [*map(id, found)]
