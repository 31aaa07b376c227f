"""Find the random generators in a dataset, fast: this runs before every epoch without workers.

The reach is that of `own_generators` (`things_in` and the globals of the user's modules), in the
same order, but nothing is named and containers of plain values are passed over at once. A test
compares the two on random objects: if this search found less, a generator that is new in the
dataset would be missed, and what it draws would depend on how many epochs there were before.
"""

from __future__ import annotations

import contextlib
import random
import sys
import weakref
from collections import deque
from collections.abc import Iterable
from functools import partial
from itertools import islice
from types import BuiltinMethodType, FunctionType, MemberDescriptorType, MethodType, ModuleType
from typing import Any, NamedTuple

import torch

from .._core.limits import LIMITS
from ..data.per_worker import per_worker
from .dataset_walk import ATOMS, DESCRIPTORS, is_users
from .rng_adapters import KINDS, numpy_if_there

# Looked up for every object of a walk.
_DEPTH = LIMITS.searches.dataset_depth
_OBJECTS = LIMITS.searches.dataset_objects
_ITEMS = LIMITS.searches.dataset_items

# Most of what a dataset holds; `issubclass` takes longer.
_PLAIN = frozenset({str, bytes, int, float, bool, type(None), torch.Tensor})
_OPAQUE = (type, ModuleType, per_worker)
_SEQUENCES = (list, tuple, deque)
_SETS = (set, frozenset)
_METHODS = (MethodType, BuiltinMethodType)
# Containers that have no attributes, and whose classes are nobody's.
_BARE = frozenset({dict, *_SEQUENCES, *_SETS, partial, *_METHODS})


class _Kind(NamedTuple):
    """What does not change about a class."""

    slots: tuple[Any, ...]
    of_user: tuple[Any, ...]  # classes of its MRO that may hold something of the user's
    modules: tuple[str, ...]  # of the user's, that its MRO is from
    opaque: bool
    is_container: bool
    is_generator: bool
    pretends: bool  # its objects may say that they are of another class, as proxies do


class _Namespace(NamedTuple):
    """What was in a class or module when it was last looked at closely: the kinds of all values,
    and the places of those that matter."""

    names: list[str]  # of a class
    kinds: list[type]
    functions: tuple[int, ...]  # may be wrapped: see `_unwrapped`
    others: tuple[int, ...]


_PRETENDING = frozenset({"__class__", "__getattribute__"})
_WRAPPERS = (staticmethod, classmethod, property)
_kinds: weakref.WeakKeyDictionary[type, _Kind] = weakref.WeakKeyDictionary()
_classes: weakref.WeakKeyDictionary[type, _Namespace] = weakref.WeakKeyDictionary()
_modules: weakref.WeakKeyDictionary[ModuleType, _Namespace] = weakref.WeakKeyDictionary()


def generators_in(roots: tuple[Any, ...]) -> list[Any]:
    """Return all objects in `roots` that look like a generator, each once."""
    seen = {*map(id, roots)}
    found: list[Any] = []
    known: set[type] = set()  # classes
    modules: dict[str, None] = {}
    level: list[Any] = list(roots)
    for _ in range(_DEPTH):
        following: list[Any] = []
        for thing in level:
            for inner in _inside(thing, known, modules):
                kind = type(inner)
                if kind in _PLAIN or issubclass(kind, ATOMS) or id(inner) in seen:
                    continue
                if len(seen) > _OBJECTS:
                    _note_modules((*level, *following), modules)
                    return found + _in_modules(modules, found)
                seen.add(id(inner))
                following.append(inner)
                if kind not in _BARE and kind is not FunctionType and _is_generator(inner):
                    found.append(inner)
        level = following
        if not level:
            break
    _note_modules(level, modules)
    return found + _in_modules(modules, found)


def _inside(thing: Any, known: set[type], modules: dict[str, None]) -> Iterable[Any]:
    """Return what an object holds, and what its class does if that is not in `known` yet. Note the
    user's modules that they are from."""
    kind: Any = type(thing)
    if kind in _BARE:
        return _entries(thing, kind)
    if kind is FunctionType:
        modules[str(thing.__module__)] = None
        if thing.__closure__ or thing.__defaults__ or thing.__kwdefaults__:
            return _in_function(thing)
        return ()
    about = _of(kind)
    for name in about.modules:
        modules[name] = None
    held: list[Any] = [] if about.opaque else _attributes(thing, kind, about)
    for each in about.of_user:
        if each not in known:
            known.add(each)
            held += _in_class(each)
    return held


def _entries(thing: Any, kind: Any) -> list[Any]:
    """Return the entries of a container, of any subclass of one."""
    if kind is partial:
        return [thing.func, thing.args, thing.keywords]
    if kind in _METHODS:
        return [thing.__self__]
    held: list[Any] = []
    if issubclass(kind, dict):
        held = _unless_plain(dict.values(thing))
    for base in _SEQUENCES:
        if issubclass(kind, base):
            held += _unless_plain(base.__iter__(thing))
    if issubclass(kind, _SETS):
        some = (set if issubclass(kind, set) else frozenset).__iter__(thing)
        held += _unless_plain(some)
    return held


def _unless_plain(entries: Iterable[Any]) -> list[Any]:
    held = list(islice(entries, _ITEMS))
    return [] if _PLAIN.issuperset(map(type, held)) else held


def _attributes(thing: Any, kind: Any, about: _Kind) -> list[Any]:
    held = _entries(thing, kind) if about.is_container else []
    try:
        attributes = object.__getattribute__(thing, "__dict__")
        if type(attributes) is dict:
            held += attributes.values()
    except Exception:  # it has none, or none for us
        pass
    for slot in about.slots:
        with contextlib.suppress(AttributeError):  # it was never set
            held.append(slot.__get__(thing))
    return held


def _in_function(function: Any) -> list[Any]:
    held: list[Any] = []
    for cell in function.__closure__ or ():
        with contextlib.suppress(ValueError):  # empty
            held.append(cell.cell_contents)
    held += function.__defaults__ or ()
    if function.__kwdefaults__:
        held += function.__kwdefaults__.values()
    return held


def _in_class(kind: type) -> list[Any]:
    names, values = [*vars(kind)], [*vars(kind).values()]
    about = _classes.get(kind)
    if about is None or about.kinds != [*map(type, values)] or about.names != names:
        about = _classes[kind] = _look_into(names, values, classes=True)
    held = [values[at] for at in about.others]
    for at in about.functions:
        function = _unwrapped(values[at])
        if type(function) is FunctionType:
            if function.__closure__ or function.__defaults__ or function.__kwdefaults__:
                held += _in_function(function)
        elif about.names[at][:2] != "__" and type(function) not in DESCRIPTORS:
            held.append(function)
    return held


def _unwrapped(value: Any) -> Any:
    if type(value) is FunctionType:
        return value
    return value.fget if type(value) is property else value.__func__


def _look_into(names: list[str], values: list[Any], *, classes: bool) -> _Namespace:
    kinds = [*map(type, values)]
    wrapped = (FunctionType, *_WRAPPERS) if classes else (FunctionType,)
    functions = tuple(at for at, kind in enumerate(kinds) if kind in wrapped)
    if classes:
        others = tuple(
            at
            for at, (name, kind) in enumerate(zip(names, kinds, strict=False))
            if kind not in wrapped and kind not in DESCRIPTORS and name[:2] != "__"
        )
    else:
        others = tuple(at for at, kind in enumerate(kinds) if kind.__name__ in KINDS)
    return _Namespace(names, kinds, functions, others)


def _note_modules(things: Iterable[Any], modules: dict[str, None]) -> None:
    """Note the user's modules that objects which nobody has looked into are from."""
    for thing in things:
        kind = type(thing)
        if kind is FunctionType:
            modules[str(thing.__module__)] = None
        elif kind not in _BARE:
            for name in _of(kind).modules:
                modules[name] = None


def _in_modules(modules: dict[str, None], found: list[Any]) -> list[Any]:
    """Return the generators among the globals of modules, and in their functions."""
    more: list[Any] = []
    for name in modules:
        if is_users(name) and (module := sys.modules.get(name)) is not None:
            more += _in_module(name, module)
    unique: list[Any] = []
    seen = set(map(id, found)) if more else set()
    for thing in more:
        if id(thing) not in seen and _is_generator(thing):
            seen.add(id(thing))
            unique.append(thing)
    return unique


def _in_module(name: str, module: ModuleType) -> list[Any]:
    values = [*vars(module).values()]
    is_module = isinstance(module, ModuleType)  # or what a program has put in its place
    about = _modules.get(module) if is_module else None
    if about is None or about.kinds != [*map(type, values)]:  # names do not matter here
        about = _look_into([], values, classes=False)
        if is_module:
            _modules[module] = about
    held = [values[at] for at in about.others]
    for at in about.functions:
        function = values[at]
        if not (function.__closure__ or function.__defaults__ or function.__kwdefaults__):
            continue
        if function.__module__ == name:
            held += [it for it in _in_function(function) if type(it).__name__ in KINDS]
    return held


def _is_generator(thing: Any) -> bool:
    about = _of(type(thing))
    if about.pretends:
        try:
            return isinstance(thing, _generator_kinds())
        except Exception:  # of the user's own making
            return False
    return about.is_generator


def _of(kind: type) -> _Kind:
    about = _kinds.get(kind)
    if about is None:
        about = _kinds[kind] = _look_at(kind)
    return about


def _look_at(kind: type) -> _Kind:
    slots, of_user, modules = [], [], []
    for each in kind.__mro__:
        slots += [slot for slot in vars(each).values() if type(slot) is MemberDescriptorType]
        if each is not object and is_users(vars(each).get("__module__", "")):
            of_user.append(each)
        modules.append(str(getattr(each, "__module__", "")))
    return _Kind(
        tuple(slots),
        tuple(of_user),
        tuple(name for name in dict.fromkeys(modules) if is_users(name)),
        issubclass(kind, _OPAQUE),
        issubclass(kind, (dict, *_SEQUENCES, *_SETS)),
        issubclass(kind, _generator_kinds()),
        any(_PRETENDING & vars(each).keys() for each in kind.__mro__[:-1]),
    )


def _generator_kinds() -> tuple[type, ...]:
    kinds: list[type] = [random.Random, torch.Generator]
    numpy = numpy_if_there()
    if numpy is not None:
        kinds += [numpy.random.RandomState, numpy.random.Generator]
    return tuple(kinds)
