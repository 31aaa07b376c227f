"""Which keys are found by code of the program's own: by a `__hash__` or an `__eq__` of its classes.

Such a key can be put in a table when that code is there, and the key has its attributes. All others
(words, numbers, classes, members of enum classes, objects that are equal to themselves alone) can
at any time.
"""

from __future__ import annotations

import dis
import enum
from collections.abc import Callable, Iterable, Iterator
from types import CodeType, FunctionType, ModuleType, WrapperDescriptorType
from typing import Any

from ...._loading.raw_attributes import instance_dict, mro, namespace, on_class
from ..name_lookups import inner

_FINDS = ("__hash__", "__eq__")
# What runs where an object is made anew. Those of the second kind only if it says how.
_MAKES = ("__new__", "__setstate__", "__setattr__", "__getattr__", "__getattribute__")
_ONLY_IF_ASKED = ("__init__", "__reduce__", "__reduce_ex__")
_PLAIN = frozenset({bool, int, float, complex, str, bytes, type(None), type(Ellipsis)})
_NESTED = (tuple, frozenset)
_CHANGES_DICT = {"update", "setdefault", "__setitem__"}
# By these a class says how its objects are sent.
_SENT = (
    *("__reduce__", "__reduce_ex__", "__getstate__", "__setstate__"),
    *("__getnewargs__", "__getnewargs_ex__"),
)
_BEHIND = ("__func__", "fget", "func", "__wrapped__")


def has_hash_code(kind: type) -> bool:
    """Whether Python code decides where an object of a class is found in a table."""
    if on_class(kind, "__hash__") is None:  # it is no key
        return False
    for each in mro(kind):
        if namespace(each).get("__module__") == enum.__name__:
            continue  # by the name of a member, which is there when the member is
        for name in _FINDS:
            found = namespace(each).get(name)
            if found is not None and type(found) is not WrapperDescriptorType:
                return True
    return False


def keys_to_be_read(table: Iterable[Any]) -> list[Any]:
    """Return the keys of a table, or what is in them, that may be found by code."""
    kinds = set(map(type, table)) - _PLAIN
    if not kinds:
        return []
    by_kind = {kind: _may_need_code(kind) for kind in kinds}
    found: list[Any] = []
    for key in table:
        if by_kind.get(type(key), False):
            found += _flat(key) if type(key) in _NESTED else [key]
    return found


def _flat(key: Any) -> Iterator[Any]:
    if type(key) in _NESTED:
        for each in key:
            yield from _flat(each)
    elif type(key) not in _PLAIN and _may_need_code(type(key)):
        yield key


def _may_need_code(kind: type) -> bool:
    if kind in _NESTED:
        return True
    if issubclass(kind, type | FunctionType | ModuleType):
        return has_hash_code(kind)
    return has_hash_code(kind) or issubclass(kind, _NESTED)


def stores_its_hash(kind: type) -> bool:
    """Whether `__hash__` of a class sets attributes: then it keeps a number of this process."""
    method = namespace(kind).get("__hash__")
    if type(method) is not FunctionType:
        return False
    names = {name for code in inner(method.__code__) for name in code.co_names}
    if "hash" not in names:
        return False
    if not names.isdisjoint({"setattr", "__setattr__"}) or _has(method.__code__, "STORE_ATTR"):
        return True
    return "__dict__" in names and (
        not names.isdisjoint(_CHANGES_DICT) or _has(method.__code__, "STORE_SUBSCR")
    )


def _has(code: CodeType, operation: str) -> bool:
    return any(each.opname == operation for each in dis.get_instructions(code))


def has_attributes_alone(kind: type, is_own: Callable[[type], bool]) -> bool:
    """Whether an object is of classes of the program's own alone, which leave it to pickle how it
    is sent: as what stands in its `__dict__`."""
    own = mro(kind)[:-1]
    return all(map(is_own, own)) and not any(
        name in namespace(each) for each in own for name in (*_SENT, "__slots__")
    )


def is_all_plain(key: Any) -> bool:
    """Whether such an object has nothing but words and numbers: no other code finds it."""
    return _PLAIN.issuperset(map(type, instance_dict(key).values()))


def needed_names(kind: type, is_own: Callable[[type], bool]) -> set[str]:
    """Return the names of all attributes of a class that may be read while an object of it is made,
    or looked for in a table, as far as code shows."""
    own = [each for each in mro(kind) if is_own(each)]
    names: set[str] = set()
    asked = any(name in namespace(each) for each in own for name in _ONLY_IF_ASKED[1:])
    left = {*_FINDS, *_MAKES, *(_ONLY_IF_ASKED if asked else ())}
    if issubclass(kind, BaseException):
        left.add("__init__")
    while left:
        name = left.pop()
        names.add(name)
        for each in own:
            for function in _functions_in(namespace(each).get(name)):
                for code in inner(function.__code__):
                    left |= {other for other in code.co_names if other not in names}
    return names


def _functions_in(thing: Any) -> Iterator[FunctionType]:
    """Yield the functions behind an attribute of a class: methods, properties, decorated ones."""
    for each in (thing, *(getattr(thing, name, None) for name in _BEHIND)):
        if type(each) is FunctionType:
            yield each
