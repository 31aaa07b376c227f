"""Names that our class needs and a subclass of torch's has taken for something of its own.

Found in its code, before it is run: what it defines, and what its functions assign to (of any
object: which one cannot be told). `setattr` with a name that is made up is not seen.
"""

from __future__ import annotations

import dis
import functools
import inspect
from collections.abc import Iterator
from types import CodeType, FunctionType
from typing import Any

from torch.utils.data import dataloader as torch_engine

from ..loader import _OF_PROCESS, DataLoader

# For the user alone: nothing of ours calls them, and a subclass that has its own has its own.
FOR_THE_USER = frozenset({"stats", "explain", "progress", "snapshot"})
NEEDED = frozenset(
    name
    for name in {*vars(DataLoader), *inspect.get_annotations(DataLoader), *_OF_PROCESS}
    if not name.startswith("__")
    and not hasattr(torch_engine.DataLoader, name)
    and name not in FOR_THE_USER
)


def names_taken(cls: type) -> list[str]:
    """Give those of the names we need that a class, or a base besides torch's and ours, takes."""
    taken: set[str] = set()
    for base in cls.__mro__:
        if not issubclass(DataLoader, base):
            taken.update(vars(base))
            for value in vars(base).values():
                taken.update(*map(_assigned, _codes(value)))
    return sorted(taken & NEEDED)


def _codes(value: Any) -> Iterator[CodeType]:
    """Give the code of a function, a method, a property, or what wraps one."""
    inner: tuple[Any, ...] = ()
    match value:
        case FunctionType():
            yield value.__code__
            inner = (vars(value).get("__wrapped__"),)
        case staticmethod() | classmethod():
            inner = (value.__func__,)
        case property():
            inner = (value.fget, value.fset, value.fdel)
        case functools.cached_property() | functools.partialmethod():
            inner = (value.func,)
    for each in inner:
        yield from _codes(each)


def _assigned(code: CodeType) -> set[str]:
    """Give the names of attributes that code assigns to, functions within it included."""
    found: set[str] = set()
    if not NEEDED.isdisjoint(code.co_names):
        found.update(
            each.argval for each in dis.get_instructions(code) if each.opname == "STORE_ATTR"
        )
    for constant in code.co_consts:
        if isinstance(constant, CodeType):
            found |= _assigned(constant)
    return found
