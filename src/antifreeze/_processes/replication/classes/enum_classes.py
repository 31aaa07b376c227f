"""Enum classes of the program's own: sent with their members as they are in memory.

A member is more than its value: `__init__` and `__new__` set attributes of it, and so may the
program, later. So no code of the class runs where it arrives. Its members are made empty, with
their names, aliases and order; then each gets the attributes it has here.
"""

from __future__ import annotations

import enum
from typing import Any

from cloudpickle import cloudpickle  # type: ignore[import-untyped]

from .keyed_tables import KeyedTables, has_its_parts

_SCALARS = frozenset({bool, int, float, complex, str, bytes, type(None)})
_DATA: tuple[Any, ...] = (int, float, complex, str, bytes, tuple)  # what a member may be besides
_OF_MEMBER = frozenset({"__objclass__", "_name_", "_sort_order_"})  # set when it is made anew
_OF_CLASS = ("_member_names_", "_member_map_", "_member_type_", "_value2member_map_")  # likewise
_NEXT = "_generate_next_value_"


def reduce_enum(kind: Any, tables: KeyedTables | None) -> Any:
    """Return how to make an enum class anew, as `__reduce__` does."""
    of_data = kind._member_type_
    plain = next((each for each in _DATA if issubclass(of_data, each)), None)
    if plain is None and of_data.__new__ is not object.__new__:  # `class Day(date, Enum)`
        return cloudpickle._dynamic_class_reduce(kind)
    is_flag = issubclass(kind, enum.Flag)
    members: dict[str, Any] = {}
    states = {}
    for name, member in kind.__members__.items():
        if name != member._name_ and member._name_ in members:
            members[name] = member._name_
            continue
        # Any other value may refer to the class: it follows when there is one.
        is_known = is_flag or type(member._value_) in _SCALARS
        data = None if plain is None else plain.__new__(plain, _as_plain(member, plain))
        members[name] = (data, (member._value_,) if is_known else None)
        own = getattr(member, "__dict__", {})
        states[name] = {each: value for each, value in own.items() if each not in _OF_MEMBER}
    attributes, slots = cloudpickle._class_getstate(kind)
    for name in (*_OF_CLASS, *members):
        attributes.pop(name, None)
    if getattr(attributes.get(_NEXT), "__module__", "enum") == "enum":
        attributes.pop(_NEXT, None)
    names = kind.__name__, kind.__qualname__, kind.__module__
    made = type(kind), kind.__bases__, names, plain, members, kind._boundary_ if is_flag else None
    number = cloudpickle._get_or_create_tracker_id(kind)
    state: Any = (attributes, slots), states
    setter: Any = fill
    if tables is not None and tables.is_keyed(kind):
        content: dict[Any, Any] = dict(attributes)
        for each, own in states.items():
            content.update({(each, name): value for name, value in own.items()})
        late = tables.late_in(kind, content)
        first, second = (_part(state, late, second=each) for each in (False, True))
        state, setter = tables.in_parts(kind, fill, first, second), has_its_parts
    return make, (*made, number), state, None, None, setter


def _part(state: Any, late: set[Any], *, second: bool) -> Any:
    """Return the first part of what a class and its members have, or the second."""
    (attributes, slots), states = state
    of_class = {name: value for name, value in attributes.items() if (name in late) is second}
    of_members = {
        each: {name: value for name, value in own.items() if ((each, name) in late) is second}
        for each, own in states.items()
    }
    return (of_class, {} if second else slots), of_members


def reduce_member(member: Any) -> Any:
    """Return how a member is found in its class; NotImplemented for one that has no name."""
    kind: Any = type(member)
    name = getattr(member, "_name_", None)
    if kind._member_map_.get(name) is not member:
        return NotImplemented
    return member_of, (kind, name)


def _as_plain(member: Any, plain: type) -> Any:
    return str.__str__(member) if plain is str else member


# ---- in the clean process -----------------------------------------------------------------------


class _Member:
    """What a member is made from: the data that it is itself, and its value."""

    def __init__(self, plain: Any, data: Any, value: Any) -> None:
        self.plain, self.data, self.value = plain, data, value


class _Later:
    """The value of a member until it is known: equal to no other."""


def make(
    meta: Any,
    bases: tuple[type, ...],
    names: tuple[str, str, str],
    plain: type | None,
    members: dict[str, Any],
    boundary: Any,
    number: str,
) -> Any:
    """Return an enum class whose members have no attributes but their names."""
    name, qualified, module = names
    given: Any = enum.EnumMeta.__prepare__(name, bases)
    given["__new__"], given["__init__"] = _new_member, _no_init
    made: dict[str, _Member] = {}
    for each, told in members.items():
        if isinstance(told, str):
            made[each] = made[told]
        else:
            data, value = told
            made[each] = _Member(plain, data, _Later() if value is None else value[0])
        given[each] = made[each]
    more = {} if boundary is None else {"boundary": boundary}
    kind: Any = enum.EnumMeta.__new__(meta, name, bases, given, **more)
    type.__delattr__(kind, "__init__")
    if "__new_member__" in vars(kind):
        type.__delattr__(kind, "__new_member__")
    kind.__module__, kind.__qualname__ = module, qualified
    return cloudpickle._lookup_class_or_track(number, kind)


def _new_member(kind: Any, made: Any) -> Any:
    made = made[0] if type(made) is tuple else made  # of a class of tuples
    if made.plain is None:
        member = object.__new__(kind)
    else:
        member = made.plain.__new__(kind, made.data)
    member._value_ = made.value
    return member


def _no_init(member: Any, made: Any) -> None:
    """Nothing: a member's attributes follow."""


def fill(kind: Any, state: tuple[Any, ...]) -> None:
    """Have a class and its members be what they were."""
    attributes, states = state
    cloudpickle._class_setstate(kind, attributes)
    for name, own in states.items():
        vars(kind._member_map_[name]).update(own)
    members = kind._value2member_map_
    for value in [each for each in members if type(each) is _Later]:
        member = members.pop(value)
        try:
            members.setdefault(member._value_, member)
        except TypeError:  # it has no hash; by a list that came with the class it is found
            continue


def member_of(kind: Any, name: str) -> Any:
    return kind._member_map_[name]
