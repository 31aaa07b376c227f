"""Variables of `contextvars`, with the value that they have in the thread that loops.

A forked worker goes on in a copy of that thread's context. A variable of a library is found there
by name; one of the program's own is made anew.
"""

from __future__ import annotations

import contextvars
from typing import Any

from ..library_sentinels import Place, find

_UNSET = object()
Value = tuple[Any, ...]  # a value, or nothing


def reduce_variable(variable: contextvars.ContextVar[Any], place: Place | None) -> Any:
    """Return how to find or make a variable and set it, as `__reduce__` does."""
    context = contextvars.copy_context()
    value = context.get(variable, _UNSET)
    made: tuple[Any, ...]
    if place is not None:
        made = find, place
    else:
        made = make, (variable.name, _default(variable))
    return made if value is _UNSET else (*made, value, None, None, set_value)


def _default(variable: contextvars.ContextVar[Any]) -> Value:
    try:
        return (contextvars.Context().run(variable.get),)
    except LookupError:
        return ()


def make(name: str, default: Value) -> contextvars.ContextVar[Any]:
    if default:
        return contextvars.ContextVar(name, default=default[0])
    return contextvars.ContextVar(name)


def set_value(variable: contextvars.ContextVar[Any], value: Any) -> None:
    variable.set(value)
