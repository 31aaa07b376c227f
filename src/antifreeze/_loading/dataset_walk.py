"""What is inside an object of the user's: looked at, never asked.

No method runs that a class may have made its own: to look must not load, open or compute anything.
"""

from __future__ import annotations

import contextlib
import functools
import itertools
import sys
from collections import deque
from collections.abc import Iterator
from types import (
    BuiltinMethodType,
    FunctionType,
    GetSetDescriptorType,
    MemberDescriptorType,
    MethodType,
    ModuleType,
)
from typing import Any

import torch

from .._core.limits import LIMITS
from ..data.per_worker import per_worker
from .raw_attributes import (
    class_name,
    declared_module,
    instance_dict,
    is_one_of,
    module_of,
    mro,
    namespace,
)

# Looked up for every object of a walk.
_DEPTH = LIMITS.searches.dataset_depth
_OBJECTS = LIMITS.searches.dataset_objects
_ITEMS = LIMITS.searches.dataset_items

ATOMS = (str, bytes, int, float, type(None), torch.Tensor)
DESCRIPTORS = (GetSetDescriptorType, MemberDescriptorType)
# Whose objects are values, however they are made anew.
_OF_VALUES = sys.stdlib_module_names | {
    "antifreeze",
    "cloudpickle",
    "numpy",
    "pandas",
    "PIL",
    "torch",
}
_OF_VALUES |= {"attr", "attrs", "polars", "pyarrow", "pydantic"}
# Whose classes hold nothing of the user's; beside the standard library.
_LIBRARIES = frozenset({"antifreeze", "numpy", "torch"})


def has_own(kind: Any, *names: str) -> bool:
    """Say whether a class has methods of these names that are Python code, but for those that the
    standard library, torch and others whose objects are mere values have written or made."""
    for each in mro(kind)[:-1]:
        for name in names:
            method = namespace(each).get(name)
            if type(method) is FunctionType and not (
                _root(each) in _OF_VALUES or _root(method) in _OF_VALUES
            ):
                return True
    return False


def _root(thing: Any) -> str:
    return module_of(thing).partition(".")[0]


def things_in(
    roots: tuple[Any, ...], *, name: str = "", atoms: bool = False, classes: bool = False
) -> Iterator[tuple[str, Any]]:
    """Yield what is in attributes, lists, tuples, sets and dicts, breadth first, each once.

    `name`: what to call a root, if not by its type. `atoms`: numbers and words, too, wherever they
    are. `classes`: what the user's own classes of these things hold, too, as `Class.attribute`.
    """
    seen = {id(root) for root in roots}
    known: set[int] = set()  # classes
    level = [(name or class_name(type(root)), root) for root in roots]
    for _ in range(_DEPTH):
        following = []
        for path, thing in level:
            found = inside(path, thing)
            if classes:
                found = itertools.chain(found, _in_classes(type(thing), known))
            for where, inner in found:
                if issubclass(type(inner), ATOMS):
                    if atoms and inner is not None:
                        yield where, inner
                    continue
                if id(inner) in seen:
                    continue
                if len(seen) > _OBJECTS:
                    return
                seen.add(id(inner))
                yield where, inner
                following.append((where, inner))
        level = following


def inside(path: str, thing: Any) -> Iterator[tuple[str, Any]]:
    """Yield what is in one object itself."""
    # Never by a method that a class may have made its own, nor by `isinstance`, which may ask the
    # object: to look must not load anything.
    kind: Any = type(thing)
    if issubclass(kind, type | ModuleType | per_worker):
        return
    if issubclass(kind, dict):
        entries = list(itertools.islice(dict.items(thing), _ITEMS))
        for place, (key, inner) in enumerate(entries):
            step = repr(key) if is_one_of(type(key), int, str) else f"entry {place}"
            yield f"{path}[{step}]", inner
    for base in (list, tuple, deque):
        if issubclass(kind, base):
            entries = list(itertools.islice(base.__iter__(thing), _ITEMS))
            for place, inner in enumerate(entries):
                yield f"{path}[{place}]", inner
    if issubclass(kind, set | frozenset):
        some = (set if issubclass(kind, set) else frozenset).__iter__(thing)
        entries = list(itertools.islice(some, _ITEMS))
        for place, inner in enumerate(entries):
            if not issubclass(type(inner), ATOMS):  # numbers and words have no place in it
                yield f"{path}[{place}]", inner
    if is_one_of(kind, MethodType, BuiltinMethodType):  # `random.Random(0).random`
        yield f"{path}.__self__", thing.__self__
    elif kind is functools.partial:
        yield f"{path}.func", thing.func
        yield f"{path}.args", thing.args
        yield f"{path}.keywords", thing.keywords
    elif kind is FunctionType:
        yield from in_function(path, thing)
    else:
        yield from _attributes(path, thing, kind)


def in_function(path: str, function: FunctionType) -> Iterator[tuple[str, Any]]:
    """Yield what a function holds: around it, and as default arguments."""
    for place, cell in enumerate(function.__closure__ or ()):
        with contextlib.suppress(ValueError):  # empty
            yield f"{path}.__closure__[{place}]", cell.cell_contents
    for place, inner in enumerate(function.__defaults__ or ()):
        yield f"{path}.__defaults__[{place}]", inner
    for name, inner in (function.__kwdefaults__ or {}).items():
        yield f"{path}.__kwdefaults__[{name!r}]", inner


def _in_classes(kind: Any, known: set[int]) -> Iterator[tuple[str, Any]]:
    """Yield what a class and its bases hold, and what their methods do."""
    for each in mro(kind):
        if id(each) in known or not is_users(declared_module(each)):
            continue
        known.add(id(each))
        for name, value in list(namespace(each).items()):
            if is_one_of(type(value), staticmethod, classmethod):
                value = value.__func__
            elif type(value) is property:
                value = value.fget
            if type(value) is FunctionType:
                yield from in_function(f"{class_name(each)}.{name}", value)
            elif not is_one_of(type(value), *DESCRIPTORS) and name[:2] != "__":
                yield f"{class_name(each)}.{name}", value


def is_users(module: Any) -> bool:
    """Say whether a module, by its name, may hold what is the user's."""
    top = module.partition(".")[0] if type(module) is str else ""  # it may be set to anything
    return top not in _LIBRARIES and top not in sys.stdlib_module_names


def _attributes(path: str, thing: Any, kind: Any) -> Iterator[tuple[str, Any]]:
    for name, inner in list(instance_dict(thing).items()):
        yield f"{path}.{name}", inner
    for each in mro(kind):
        for name, slot in list(namespace(each).items()):
            if type(slot) is MemberDescriptorType:
                with contextlib.suppress(AttributeError):  # it was never set
                    yield f"{path}.{name}", slot.__get__(thing)
