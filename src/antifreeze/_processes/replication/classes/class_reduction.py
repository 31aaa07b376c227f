"""Classes of the program's own, sent as they are in memory.

1. A metaclass of the program's own is not asked to make its classes again, nor to set what they
   have: it may want arguments that nobody has kept, or refuse. So no code of it runs there.
2. A class of keys comes in two parts (`keyed_tables`).
"""

from __future__ import annotations

import abc
import enum
from collections.abc import Callable
from typing import Any

from cloudpickle import cloudpickle  # type: ignore[import-untyped]

from ...._loading.raw_attributes import class_name, mro
from .enum_classes import reduce_enum
from .keyed_tables import KeyedTables, has_its_parts


def reduce_class(kind: Any, is_own: Callable[[Any], bool], tables: KeyedTables | None) -> Any:
    """Return how to make a class anew, as `__reduce__` does: with its slots. (Made without them,
    its objects would have a dict there, and could not come back.)"""
    if issubclass(type(kind), enum.EnumMeta):
        return reduce_enum(kind, tables)
    make, arguments, (attributes, more), *_ = cloudpickle._dynamic_class_reduce(kind)
    if make is not cloudpickle._make_skeleton_class:
        return cloudpickle._dynamic_class_reduce(kind)
    constructor, name, bases, given, *rest = arguments
    slots = vars(kind).get("__slots__")
    if slots:  # of none there is nothing to keep, and a NamedTuple makes them itself
        slots = (slots,) if isinstance(slots, str) else tuple(slots)
        made = {"__slots__", *slots, *(f"_{name.lstrip('_')}{slot}" for slot in slots)}
        attributes = {each: value for each, value in attributes.items() if each not in made}
        given = {**given, "__slots__": slots}
    maker = _maker_of(constructor, is_own)
    if maker is not None:
        bases = kind.__bases__
    state: Any = attributes, more
    setter = _set_state if maker is None else _set_state_past_code
    if tables is not None and tables.is_keyed(kind):
        late = tables.late_in(kind, attributes)
        first = {each: value for each, value in attributes.items() if each not in late}
        second = {each: value for each, value in attributes.items() if each in late}
        state = tables.in_parts(kind, setter, (first, more), (second, {}))
        setter = has_its_parts
    made_from = (maker, constructor, name, bases, given, *rest)
    return make_class, made_from, state, None, None, setter


def _maker_of(constructor: Any, is_own: Callable[[Any], bool]) -> Any:
    """Return the metaclass that makes a class, past the code of its own one; None: the latter."""
    if class_name(constructor) == "_TypedDictMeta":  # it makes them of their fields alone
        return type
    if not is_own(constructor):
        return None
    return next(each for each in mro(constructor) if not is_own(each))


# ---- in the clean process -----------------------------------------------------------------------


def make_class(
    maker: Any, constructor: Any, name: str, bases: Any, given: dict[str, Any], *rest: Any
) -> Any:
    """Return a class without its attributes. `maker`: the metaclass that makes it, if its own one,
    `constructor`, does not."""
    try:
        if maker is None:
            make = cloudpickle._make_skeleton_class
            return make(constructor, name, bases, given, *rest)
        kind = maker.__new__(constructor, name, bases, dict(given))
    except Exception as error:
        where = f"{given.get('__module__', '')}.{name}".lstrip(".")
        raise TypeError(f"class {where} cannot be made anew: {error}") from error
    return cloudpickle._lookup_class_or_track(rest[0], kind)


def _set_state(kind: Any, state: Any) -> None:
    cloudpickle._class_setstate(kind, state)


def _set_state_past_code(kind: Any, state: Any) -> None:
    attributes, _ = state
    for name, value in attributes.items():
        if name != "_abc_impl":
            type.__setattr__(kind, name, value)
    if "__firstlineno__" in attributes:  # which setting others takes away
        type.__setattr__(kind, "__firstlineno__", attributes["__firstlineno__"])
    for heir in attributes.get("_abc_impl", ()):
        abc.ABCMeta.register(kind, heir)
