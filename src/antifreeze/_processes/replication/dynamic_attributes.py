"""Objects whose class answers for attributes by code (`__getattr__`, `__getattribute__`).

Pickle asks a half-built object for `__setstate__`. A proxy that looks up its target in an attribute
of its own, which is not there yet, then asks itself without end. So nothing is asked of them.
"""

from __future__ import annotations

from types import FunctionType
from typing import Any

from ..._loading.raw_attributes import instance_dict, mro, namespace, on_class

_OWN_WAY = ("__reduce__", "__reduce_ex__", "__setstate__")


def asks_code(kind: type) -> bool:
    """Whether a class has code for attributes, and leaves it to pickle how its objects are sent."""
    if any(on_class(kind, each) is not object.__dict__.get(each) for each in _OWN_WAY):
        return False
    if on_class(kind, "__getattr__") is not None:
        return True
    return any(type(namespace(each).get("__getattribute__")) is FunctionType for each in mro(kind))


def reduce_quietly(thing: Any) -> Any:
    """Return how to make an object anew, as `__reduce__` does, without asking it for anything."""
    reduced = object.__reduce_ex__(thing, 4)
    if isinstance(reduced, str) or len(reduced) < 3 or reduced[2] is None:
        return reduced
    return *(*reduced, None, None)[:5], fill


def fill(thing: Any, state: Any) -> None:
    """Set what an object has, as pickle does, but past the code of its class."""
    slots = None
    if type(state) is tuple and len(state) == 2:
        state, slots = state
    if state:
        instance_dict(thing).update(state)
    for name, value in (slots or {}).items():
        object.__setattr__(thing, name, value)
