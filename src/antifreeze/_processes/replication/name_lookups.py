"""Where a function looks for names that are made while it runs, as far as its code shows.

Who calls `globals()`, or asks `sys.modules` for a module, may look for anything in it. No list of
the globals that a function uses has it, so all of such a module is to be sent.
"""

from __future__ import annotations

import dis
import functools
import sys
from collections.abc import Iterator
from dataclasses import replace
from types import CodeType, FunctionType

from ..._core.frozen_values import frozen
from ..._loading.raw_attributes import instance_dict

_BUILTINS = frozenset({"globals", "eval", "exec"})  # as attributes they are others: `model.eval()`
_OF_ITS_MODULE = frozenset({"get_type_hints", "get_annotations"})
_OF_A_MODULE = frozenset({"getattr", "vars", "dir", "__dict__", "getmembers", "attrgetter"})


@frozen
class Lookups:
    """What a function may look into."""

    own_module: bool = False
    any_module: bool = False  # of those that are imported
    script: bool = False  # by its name, `__main__`
    imported: bool = False  # what it imports while it runs: for names that are not written there
    words: frozenset[str] = frozenset()  # its strings: names may be among them


def lookups_in(function: FunctionType) -> Lookups:
    found = _in_code(function.__code__)
    if found.any_module and not _knows_sys(function):  # `network.modules()`
        return replace(found, own_module=_looks_in_its_own(function.__code__), any_module=False)
    return found


def refuse_nameless_globals(function: FunctionType) -> None:
    """Raise TypeError if a function may look for anything in a dict that is no module's (code that
    was run by `exec`, or by `runpy`): no more of that is sent than what functions name."""
    if lookups_in(function).own_module:
        module = sys.modules.get(function.__globals__.get("__name__", ""))
        if module is None or instance_dict(module) is not function.__globals__:
            raise TypeError(
                f"{function.__qualname__} looks for names in a dict of globals that is no module's"
            )


def _knows_sys(function: FunctionType) -> bool:
    here = function.__globals__
    names = {name for code in inner(function.__code__) for name in code.co_names}
    return "sys" in names or any(
        here.get(name) is sys or here.get(name) is sys.modules for name in names
    )


@functools.lru_cache(maxsize=4096)
def _in_code(code: CodeType) -> Lookups:
    names = frozenset().union(*(each.co_names for each in inner(code)))
    asks_modules = "modules" in names
    own = _looks_in_its_own(code) or (asks_modules and "__name__" in names)
    words = frozenset(_words(code))
    script = "__main__" in names or "__main__" in words
    return Lookups(own, asks_modules, script, not _OF_A_MODULE.isdisjoint(names), words)


def _looks_in_its_own(code: CodeType) -> bool:
    names = frozenset().union(*(each.co_names for each in inner(code)))
    return not _OF_ITS_MODULE.isdisjoint(names) or _calls_builtin(code)


def _calls_builtin(code: CodeType) -> bool:
    return any(
        step.opname in ("LOAD_GLOBAL", "LOAD_NAME") and step.argval in _BUILTINS
        for each in inner(code)
        if not _BUILTINS.isdisjoint(each.co_names)
        for step in dis.get_instructions(each)
    )


def _words(code: CodeType) -> Iterator[str]:
    for each in inner(code):
        for place, constant in enumerate(each.co_consts):
            for word in constant if isinstance(constant, tuple) else (constant,):
                if isinstance(word, str) and (place or " " not in word):  # else a docstring
                    yield word


def inner(code: CodeType) -> Iterator[CodeType]:
    """Yield the code of functions and classes inside of a function, and its own."""
    yield code
    for each in code.co_consts:
        if isinstance(each, CodeType):
            yield from inner(each)
