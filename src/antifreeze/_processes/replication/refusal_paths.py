"""Which part of a thing cannot be sent, and the path of attributes that leads to it."""

from __future__ import annotations

import asyncio
import dataclasses
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import Executor
from types import FunctionType, ModuleType
from typing import Any

from ..._core.limits import LIMITS
from ..._linux.clock import monotonic
from ..._transport.packing import parts
from . import user_code

# They work by threads, which no worker gets: what of them cannot be sent is beside the point.
THREADED = (asyncio.AbstractEventLoop, threading.Thread, Executor)
Refusal = Callable[[Any, float | None], str | None]  # why a thing cannot be sent, or not until then


def find_part(refusal_of: Refusal, thing: Any, path: str, why: str) -> tuple[str, Any, str]:
    """Find the smallest part that cannot be sent by itself."""
    left, give_up = LIMITS.sending.tried_parts, monotonic() + LIMITS.sending.tried_s
    around = [thing]  # what it is in, which may be in it again
    while left > 0 and not issubclass(type(thing), THREADED):
        for step, part in _parts_sent(thing):
            if any(part is each for each in around):
                continue
            left -= 1
            if left <= 0 or monotonic() > give_up:
                return path, thing, why
            if (refusal := refusal_of(part, None)) is not None:
                path, thing, why = path + step, part, refusal
                around.append(part)
                break
        else:
            break
    return path, thing, why


def find_global(refusal_of: Refusal, thing: Any, path: str, why: str) -> tuple[str, Any, str]:
    """Find the global variable that the code of a thing uses and that cannot be sent."""
    kind: Any = type(thing)
    left: list[Any] = [thing if kind is FunctionType else kind]
    seen, give_up = {id(left[0])}, monotonic() + LIMITS.sending.tried_s
    while left and monotonic() < give_up:
        for function in _functions_of(left.pop(0)):
            for name, value in user_code.globals_of(function):
                if id(value) in seen or isinstance(value, ModuleType):
                    continue
                seen.add(id(value))
                if isinstance(value, type | FunctionType):
                    left.append(value)
                elif (refusal := refusal_of(value, give_up)) is not None:
                    return find_part(refusal_of, value, f"{function.__module__}.{name}", refusal)
    return path, thing, why


def _functions_of(thing: Any) -> Iterator[FunctionType]:
    """Yield the functions of the program's own that a class has, or a function itself."""
    things = [thing]
    if isinstance(thing, type):
        things = [value for each in thing.__mro__ for value in vars(each).values()]
    for each in things:
        function = getattr(each, "__func__", each)  # of a static method
        if type(function) is FunctionType and user_code.is_own(function.__module__ or ""):
            yield function


def _parts_sent(thing: Any) -> list[tuple[str, Any]]:
    """Give what of an object would be pickled, as far as it leaves that to us."""
    kind: Any = type(thing)
    if kind.__reduce__ is not object.__reduce__ or kind.__reduce_ex__ is not object.__reduce_ex__:
        return parts(thing) if isinstance(thing, list | tuple | dict | set | frozenset) else []
    if kind.__getstate__ is not object.__getstate__ and not dataclasses.is_dataclass(kind):
        try:
            state = thing.__getstate__()
        except Exception:
            return []
        return [(f".{name}", part) for name, part in state.items()] if type(state) is dict else []
    return parts(thing)
