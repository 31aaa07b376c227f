"""Which part of a thing cannot be sent, and the path of attributes that leads to it."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Sequence
from concurrent.futures import Executor
from types import FunctionType, ModuleType
from typing import Any

from ..._core.limits import LIMITS
from ..._linux.clock import monotonic
from ..._loading.raw_attributes import name_of_module
from . import user_code
from .stand_in_modules import namespace_of
from .unsendable import parts_sent
from .user_code import MACHINERY

# They work by threads, which no worker gets: what of them cannot be sent is beside the point.
_CODE = (type, FunctionType, ModuleType)
THREADED = (asyncio.AbstractEventLoop, threading.Thread, Executor)
Code = FunctionType | ModuleType
CodeSentWith = Callable[[Any, float], Sequence[Code]]  # with a thing, up to what fails
Refusal = Callable[[Any, float | None], str | None]  # why a thing cannot be sent, or not until then


def find_part(refusal_of: Refusal, thing: Any, path: str, why: str) -> tuple[str, Any, str]:
    """Find the smallest part that cannot be sent by itself."""
    left, give_up = LIMITS.sending.tried_parts, monotonic() + LIMITS.sending.tried_s
    around = [thing]  # what it is in, which may be in it again
    while left > 0 and not issubclass(type(thing), THREADED):
        for step, part in parts_sent(thing):
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


def culprit(
    refusal_of: Refusal, code_sent_with: CodeSentWith, thing: Any, path: str, why: str
) -> tuple[str, Any, str]:
    """Find the smallest part that cannot be sent: of what a thing holds, or else, of a module of
    the program's own, the global that its code uses."""
    path, part, why = find_part(refusal_of, thing, path, why)
    seen, give_up = {id(part)}, monotonic() + LIMITS.sending.tried_s
    while found := _unsendable_global(refusal_of, code_sent_with(part, give_up), seen, give_up):
        path, part, why = find_part(refusal_of, *found)
    return path, part, why


def _unsendable_global(
    refusal_of: Refusal, code: Sequence[Code], seen: set[int], give_up: float
) -> tuple[Any, str, str] | None:
    """Return a global of this code that cannot be sent, its path, and why."""
    for each in reversed(code):  # what failed came last
        for name, value in _globals_along(each):
            if id(value) in seen or isinstance(value, _CODE):
                continue
            seen.add(id(value))
            if monotonic() > give_up:
                return None
            if (why := refusal_of(value, give_up)) is not None:
                return value, name, why
    return None


def _globals_along(code: Code) -> list[tuple[str, Any]]:
    """Return what is sent with a function or a module of the program's own, by its path."""
    if isinstance(code, FunctionType):
        name, inner = code.__globals__.get("__name__"), user_code.globals_of(code)
    else:
        name, inner = name_of_module(code), iter(namespace_of(code).copy().items())
    if type(name) is not str or not user_code.is_own(name):
        return []
    return [(f"{name}.{each}", value) for each, value in inner if each not in MACHINERY]
