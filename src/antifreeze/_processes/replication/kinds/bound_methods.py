"""Bound methods: sent as the very function, bound to the very object.

Looked up again by the name of its function, a method would be whatever the class has under that
name: not what was bound by hand (`net.forward = MethodType(forward, net)`), nor what `super()`
found.
"""

from __future__ import annotations

from collections.abc import Callable
from types import BuiltinMethodType, FunctionType, MethodType, MethodWrapperType, ModuleType
from typing import Any

from ...._loading.raw_attributes import module_of, mro, namespace
from ..unsendable import Unsendable

_MISSING = object()


def ways(is_found: Callable[[Any], bool]) -> dict[type, Callable[[Any], Any]]:
    """Return how bound methods are sent. `is_found`: whether a function arrives as itself, since it
    is the program's own, or is found under its name."""
    return {
        MethodType: lambda method: _reduce_method(method, is_found),
        BuiltinMethodType: _reduce_builtin,
        MethodWrapperType: _reduce_builtin,
    }


def _reduce_method(method: Any, is_found: Callable[[Any], bool]) -> Any:
    function, bound = method.__func__, method.__self__
    if not is_found(function) and (place := _place_of(function, bound)) is not None:
        return _bind_function, (*place, bound)
    return MethodType, (function, bound)


def _place_of(function: Any, bound: Any) -> tuple[type, str] | None:
    """Return the class of a library that has a function, and under which name."""
    for kind in _classes_of(bound):
        for name, value in list(namespace(kind).items()):
            if value is function or getattr(value, "__func__", None) is function:
                same = _package(function) in ("", _package(kind))  # else it was put there
                return (kind, name) if same else None
    return None


def _package(thing: Any) -> str:
    return module_of(thing).partition(".")[0]


def _classes_of(bound: Any) -> tuple[type, ...]:
    own = mro(bound) if issubclass(type(bound), type) else ()
    return (*own, *mro(type(bound)))


def _reduce_builtin(method: Any) -> Any:
    """Send a method that is written in C as the class that has it, its name there, and the object.
    (By its name alone it could be what a subclass has under it.)"""
    bound, name = method.__self__, method.__name__
    if bound is None or type(bound) is ModuleType:
        return method.__reduce__()
    for kind in _classes_of(bound):
        found = namespace(kind).get(name, _MISSING)
        if (
            found is not _MISSING
            and type(found) is not FunctionType
            and _bind(found, bound) == method
        ):
            return _bind_builtin, (kind, name, bound)
    if getattr(bound, name, None) == method:
        return getattr, (bound, name)
    raise Unsendable(f"the method {name} of a {type(bound).__name__}, which no class of it has")


def _bind(found: Any, bound: Any) -> Any:
    if isinstance(found, classmethod | staticmethod):
        return found.__func__
    binds = getattr(type(found), "__get__", None)
    if binds is None:
        return found
    try:
        if type(found).__name__ == "classmethod_descriptor":
            return binds(found, None, bound)
        return binds(found, bound, type(bound))
    except TypeError:  # of another kind of object: of the class, not of its metaclass
        return None


# ---- in the clean process ------------------------------------------------------------------------


def _bind_function(kind: type, name: str, bound: Any) -> Any:
    found = namespace(kind)[name]
    return MethodType(getattr(found, "__func__", found), bound)


def _bind_builtin(kind: type, name: str, bound: Any) -> Any:
    return _bind(namespace(kind)[name], bound)
