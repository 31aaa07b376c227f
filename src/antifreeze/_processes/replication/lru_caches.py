"""What functions with `functools.lru_cache` have in their caches, sent along with them.

A forked worker finds what its program has put there: settings, say, that were read once and have
been changed since. No function lists it, so it is read as the garbage collector sees it: the
entries in the order of their use, or for a cache without a bound its dict.
"""

from __future__ import annotations

import functools
import gc
from collections.abc import Callable, Sequence
from typing import Any

CachedFunction: Any = type(functools.lru_cache(len))
_ENTRY = "_lru_list_elem"  # the type of an entry of a cache with a bound
_FILLING = "_antifreeze_results"  # an attribute of a function, until its cache is filled

Call = tuple[tuple[Any, ...], dict[str, Any], Any]  # arguments, and the result


def reduce_cached(function: Any, *, with_results: bool) -> tuple[Any, list[Any]]:
    """Return how to make a function with a cache anew, as `__reduce__` does; and the arguments of
    its calls, each call's as one tuple."""
    parameters = function.cache_parameters()
    calls = _calls_of(function, parameters) if with_results else []
    given = {*functools.WRAPPER_ASSIGNMENTS, "__wrapped__"}
    own = {name: value for name, value in vars(function).items() if name not in given}
    state = (calls, own) if calls or own else None
    made = make, (function.__wrapped__, parameters, bool(calls))
    keys = [(*args, *named.values()) for args, named, _ in calls]
    return (*made, state, None, None, fill) if state else made, keys


def make(function: Callable[..., Any], parameters: dict[str, Any], filled: bool) -> Any:
    """Return a function with an empty cache. `filled`: `fill` follows."""
    if not filled:
        return functools.lru_cache(**parameters)(function)
    results: list[Any] = []

    def call(*args: Any, **named: Any) -> Any:
        return results[0] if results else function(*args, **named)

    cached = functools.lru_cache(**parameters)(functools.wraps(function)(call))
    cached.__wrapped__ = function
    setattr(cached, _FILLING, results)
    return cached


def fill(cached: Any, state: tuple[Sequence[Call], dict[str, Any]]) -> None:
    """Have a function know the results of these calls."""
    calls, own = state
    results = vars(cached).pop(_FILLING, None)
    vars(cached).update(own)
    if results is None:
        return
    for args, named, result in calls:
        results[:] = [result]
        try:
            cached(*args, **named)
        finally:
            results.clear()


def _calls_of(function: Any, parameters: dict[str, Any]) -> list[Call]:
    """Return the calls whose results a function has, the oldest first. Raises TypeError."""
    if not function.cache_info().currsize:
        return []
    seen = gc.get_referents(function)
    if seen and seen[0] is type(function):
        del seen[0]
    entries: list[tuple[Any, Any]] = []
    while len(seen) > 2 and getattr(seen[2], "__name__", "") == _ENTRY and parameters["maxsize"]:
        entries.append((seen[0], seen[1]))
        del seen[:3]
    if parameters["maxsize"] is None:
        caches = [each for each in seen if type(each) is dict and each is not vars(function)]
        entries = list(caches[0].items()) if caches else []
    if not entries:
        raise TypeError(f"what {function.__qualname__} has in its cache cannot be read")
    mark = next((each for each in seen if type(each) is object), None)
    return [(*_arguments(key, mark, parameters["typed"]), result) for key, result in entries]


def _arguments(key: Any, mark: Any, typed: bool) -> tuple[tuple[Any, ...], dict[str, Any]]:
    """Return the arguments that a key of a cache stands for. `mark`: where named ones begin."""
    if type(key) is not tuple:
        return (key,), {}
    positions = [place for place, each in enumerate(key) if each is mark]
    if not positions:
        return (key[: len(key) // 2] if typed else key), {}
    count = positions[0]
    args, rest = key[:count], key[count + 1 :]
    named = len(rest[count:]) // 3 if typed else len(rest) // 2
    return args, dict(zip(rest[0 : 2 * named : 2], rest[1 : 2 * named : 2], strict=True))
