"""Objects of the program's own classes that are exceptions, data or containers, made as they are.

Pickle makes them by code of their class: an exception by its `__init__`, with what that told its
base; a tuple or a number by `__new__`, with the data it is; the items of a dict or list by methods.
Such code may want other arguments, change what it is given a second time, or refuse. None of it
runs.
"""

from __future__ import annotations

from types import FunctionType
from typing import Any

from ...._loading.raw_attributes import instance_dict, mro, namespace, on_class
from ..dynamic_attributes import fill

_OWN_WAY = ("__reduce__", "__reduce_ex__", "__getstate__", "__setstate__", "__getnewargs_ex__")
_DATA: tuple[Any, ...] = (int, float, complex, str, bytes, tuple)
_SETTERS: dict[type, tuple[str, ...]] = {dict: ("__setitem__",), list: ("append", "extend")}


def reduce_past_code(thing: Any) -> Any:
    """Return how to make an object anew, as `__reduce__` does; NotImplemented where pickle's own
    way runs no code of its class, or the class has a way of its own."""
    kind = type(thing)
    if any(_is_code(kind, name) for name in _OWN_WAY):
        return NotImplemented
    if issubclass(kind, BaseException):
        return _reduce_exception(thing, kind)
    for base in _DATA:
        if issubclass(kind, base) and _is_code(kind, "__new__"):
            if _is_code(kind, "__getnewargs__") or not hasattr(base, "__getnewargs__"):
                return NotImplemented
            reduced: Any = object.__reduce_ex__(thing, 4)
            _, (_, *args), *state = reduced
            return (make_by, (base, kind, args), *state)
    for container, setters in _SETTERS.items():
        if issubclass(kind, container) and any(_is_code(kind, name) for name in setters):
            return _reduce_container(thing, kind, container)
    return NotImplemented


def may_run_code(kind: type) -> bool:
    """Whether `reduce_past_code` may have a way for objects of a class."""
    if issubclass(kind, (BaseException, *_SETTERS)):
        return True
    return issubclass(kind, _DATA) and _is_code(kind, "__new__")


def _is_code(kind: type, name: str) -> bool:
    found = on_class(kind, name)
    return type(getattr(found, "__func__", found)) is FunctionType


def _reduce_exception(thing: BaseException, kind: type) -> Any:
    base = next(each for each in mro(kind) if namespace(each).get("__module__") is None)
    if base.__basicsize__ != BaseException.__basicsize__:  # it has more than its arguments
        return NotImplemented
    if not _is_code(kind, "__init__") and not _is_code(kind, "__new__"):
        return NotImplemented
    made = make_by, (base, kind, thing.args)
    return *made, dict(instance_dict(thing)), None, None, fill


def _reduce_container(thing: Any, kind: type, base: type) -> Any:
    if on_class(kind, "__reduce__") is not object.__reduce__:  # that of an OrderedDict, say
        return NotImplemented
    reduced: Any = object.__reduce_ex__(thing, 4)
    make, arguments, state, *_ = reduced
    items = list(dict.items(thing)) if base is dict else list(list.__iter__(thing))
    return make, arguments, (base, state, items), None, None, fill_container


# ---- in the clean process -----------------------------------------------------------------------


def make_by(base: Any, kind: type, args: Any) -> Any:
    return base.__new__(kind, *args)


def fill_container(thing: Any, content: tuple[type, Any, list[Any]]) -> None:
    base, state, items = content
    fill(thing, state)
    if base is dict:
        dict.update(thing, items)
    else:
        list.extend(thing, items)
