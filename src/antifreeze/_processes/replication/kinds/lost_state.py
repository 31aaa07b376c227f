"""What the standard library's own classes leave out when they are pickled.

Exceptions forget why they were raised: `__cause__`, `__context__`. (A traceback cannot be sent.)
Subclasses of `Counter`, `defaultdict`, `datetime`, `Decimal` and others forget the attributes that
their objects have been given.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Any

from ...._loading.raw_attributes import (
    declared_module,
    instance_dict,
    mro,
    namespace,
)

_WAYS = ("__reduce_ex__", "__reduce__")


def reduce_exception(error: BaseException, *, past_code: Callable[[Any], Any] | None = None) -> Any:
    """Return how to make an exception anew, as `__reduce__` does, with why it was raised.

    `past_code` returns how to make it without running code of its class, or NotImplemented.
    """
    reduced = NotImplemented if past_code is None else past_code(error)
    if reduced is NotImplemented:
        reduced = error.__reduce_ex__(5)
    notes = instance_dict(error).get("__notes__")
    why = error.__cause__, error.__context__, error.__suppress_context__ or None, notes
    if not isinstance(reduced, tuple) or all(each is None for each in why):
        return reduced
    make, args, *rest = reduced
    state, items, pairs, setter = (*rest, None, None, None, None)[:4]
    return make, args, (why, state, setter), items, pairs, _fill_exception


def loses_attributes(kind: type, is_own: Callable[[type], bool]) -> bool:
    """Whether a class of the program's own leaves it to the standard library how its objects are
    sent, which knows nothing of their attributes."""
    if not is_own(kind):
        return False
    for each in mro(kind)[:-1]:
        if any(name in namespace(each) for name in _WAYS):
            module = (declared_module(each) or each.__module__).partition(".")[0]
            return module in sys.stdlib_module_names and not is_own(each)
    return False


def reduce_with_attributes(thing: Any, is_own: Callable[[type], bool]) -> Any:
    """Return how to make an object anew, as `__reduce__` does, with the attributes it has."""
    reduced = thing.__reduce_ex__(5)
    if not isinstance(reduced, tuple) or (len(reduced) > 2 and reduced[2] is not None):
        return reduced
    state = instance_dict(thing), own_slots(thing, is_own)
    if not any(state):
        return reduced
    make, args, *rest = reduced
    items, pairs = (*rest, None, None, None)[1:3]
    return make, args, state, items, pairs, fill


def own_slots(thing: Any, is_own: Callable[[type], bool]) -> dict[str, Any]:
    """Return what an object has in the slots of some of its classes."""
    found = {}
    for kind in mro(type(thing)):
        if not is_own(kind):
            continue
        declared = namespace(kind).get("__slots__", ())
        for slot in (declared,) if isinstance(declared, str) else tuple(declared):
            private = slot.startswith("__") and not slot.endswith("__")
            name = f"_{kind.__name__.lstrip('_')}{slot}" if private else slot
            if slot in ("__dict__", "__weakref__"):
                continue
            try:
                found[name] = namespace(kind)[name].__get__(thing)
            except AttributeError:  # it was never set
                continue
    return found


# ---- in the clean process ------------------------------------------------------------------------


def _fill_exception(error: Any, told: tuple[Any, Any, Any]) -> None:
    (cause, context, suppress, notes), state, setter = told
    if setter is not None:
        setter(error, state)
    elif state is not None:
        error.__setstate__(state)
    if notes is not None:
        error.__notes__ = notes
    error.__context__, error.__cause__ = context, cause
    error.__suppress_context__ = bool(suppress)  # which setting a cause has changed


def fill(thing: Any, state: tuple[dict[str, Any], dict[str, Any]]) -> None:
    """Set attributes, past the code of a class."""
    attributes, slots = state
    if attributes:
        instance_dict(thing).update(attributes)
    for name, value in slots.items():
        object.__setattr__(thing, name, value)
