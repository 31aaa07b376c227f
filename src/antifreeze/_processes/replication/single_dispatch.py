"""Functions of `functools.singledispatch`, with what has been registered with them.

Their registry lies in closures, which cannot be sent, as their cache holds weak references; and
what is imported anew knows nothing of what the program has registered since.
"""

from __future__ import annotations

import functools
import importlib
from collections.abc import Callable
from types import FunctionType
from typing import Any

_CODE: Any = functools.singledispatch(lambda thing: thing).__code__  # type: ignore[attr-defined]
_ITS_OWN = frozenset({"register", "dispatch", "registry", "_clear_cache", "__wrapped__"})

State = tuple[dict[type, Any], dict[str, Any]]  # functions by class, and attributes


def is_single_dispatch(thing: Any) -> bool:
    return type(thing) is FunctionType and thing.__code__ is _CODE and "__wrapped__" in vars(thing)


def reduce_dispatch(function: Any) -> Any:
    """Return how to make a function anew that was sent itself, as `__reduce__` does."""
    own = {name: value for name, value in vars(function).items() if name not in _ITS_OWN}
    first = function.__wrapped__
    given = {kind: each for kind, each in function.registry.items() if each is not first}
    return functools.singledispatch, (first,), (given, own), None, None, register


def reduce_extended(function: Any, is_own: Callable[[Any], bool]) -> Any:
    """Return how to find a library's function and have it know what the program has registered
    there, as `__reduce__` does; NotImplemented if that is nothing."""
    given = {kind: each for kind, each in function.registry.items() if is_own(kind) or is_own(each)}
    if not given:
        return NotImplemented
    return find, (function.__module__, function.__qualname__), (given, {}), None, None, register


# ---- in the clean process -----------------------------------------------------------------------


def register(function: Any, state: State) -> None:
    given, own = state
    vars(function).update(own)
    for kind, each in given.items():
        function.register(kind, each)


def find(module: str, qualified: str) -> Any:
    found: Any = importlib.import_module(module)
    for step in qualified.split("."):
        found = getattr(found, step)
    return found
