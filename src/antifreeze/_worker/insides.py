"""What is inside an object of the user's: looked at, never asked.

No method runs that a class may have made its own: to look must not load, open or compute anything.
"""

from __future__ import annotations

import contextlib
import functools
import itertools
from collections import deque
from collections.abc import Iterator
from types import FunctionType, MemberDescriptorType, MethodType, ModuleType
from typing import Any

import torch

from ..data.per_worker import per_worker

# How deep to look in attributes, lists and dicts: what a Compose in a Compose in a Subset of a
# Subset holds is eight steps away.
DEPTH = 8
LOOKED_AT = 1_000  # objects, at most
LOOKED_AT_IN_ONE = 32  # of the entries of one list or dict: a dataset may hold a list of millions
_ATOMS = (str, bytes, int, float, type(None), torch.Tensor)


def things_in(roots: tuple[Any, ...], *, atoms: bool = False) -> Iterator[tuple[str, Any]]:
    """Yield what is in attributes, lists, tuples and dicts, breadth first, each once; `atoms`:
    numbers and words, too, wherever they are."""
    seen = {id(root) for root in roots}
    level = [(type(root).__name__, root) for root in roots]
    for _ in range(DEPTH):
        following = []
        for path, thing in level:
            for name, inner in _inside(path, thing):
                if issubclass(type(inner), _ATOMS):
                    if atoms and inner is not None:
                        yield name, inner
                    continue
                if id(inner) in seen:
                    continue
                if len(seen) > LOOKED_AT:
                    return
                seen.add(id(inner))
                yield name, inner
                following.append((name, inner))
        level = following


def _inside(path: str, thing: Any) -> Iterator[tuple[str, Any]]:
    # Never by a method that a class may have made its own, nor by `isinstance`, which may ask the
    # object: to look must not load anything.
    kind: Any = type(thing)
    if issubclass(kind, type | ModuleType | per_worker):
        return
    if issubclass(kind, dict):
        entries = list(itertools.islice(dict.items(thing), LOOKED_AT_IN_ONE))
        for place, (key, inner) in enumerate(entries):
            step = repr(key) if type(key) in (int, str) else f"entry {place}"
            yield f"{path}[{step}]", inner
    for base in (list, tuple, deque):
        if issubclass(kind, base):
            entries = list(itertools.islice(base.__iter__(thing), LOOKED_AT_IN_ONE))
            for place, inner in enumerate(entries):
                yield f"{path}[{place}]", inner
    if kind is MethodType:
        yield f"{path}.__self__", thing.__self__
    elif kind is functools.partial:
        yield f"{path}.func", thing.func
        yield f"{path}.args", thing.args
        yield f"{path}.keywords", thing.keywords
    elif kind is FunctionType:
        for place, cell in enumerate(thing.__closure__ or ()):
            with contextlib.suppress(ValueError):  # empty
                yield f"{path}.__closure__[{place}]", cell.cell_contents
    else:
        yield from _attributes(path, thing, kind)


def _attributes(path: str, thing: Any, kind: Any) -> Iterator[tuple[str, Any]]:
    with contextlib.suppress(Exception):  # it has none, or none for us
        attributes = object.__getattribute__(thing, "__dict__")
        if type(attributes) is dict:
            for name, inner in list(attributes.items()):
                yield f"{path}.{name}", inner
    for each in kind.__mro__:
        for name, slot in list(vars(each).items()):
            if type(slot) is MemberDescriptorType:
                with contextlib.suppress(AttributeError):  # it was never set
                    yield f"{path}.{name}", slot.__get__(thing)
