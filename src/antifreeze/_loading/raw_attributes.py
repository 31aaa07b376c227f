"""Attributes of any object, read without running code of the program's.

`getattr`, `isinstance` and `vars` ask the object: a class may have a `__getattr__`, a `__class__`
or a `__dict__` of its own, and a metaclass may do the same for its classes. What is here goes by
the types that the interpreter itself knows, and never by what they say of themselves.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from types import FunctionType, GetSetDescriptorType, MemberDescriptorType, MethodType, ModuleType
from typing import Any

# What `type` itself answers with, whatever a metaclass has in their place.
mro: Callable[[type], tuple[type, ...]] = type.__dict__["__mro__"].__get__
namespace: Callable[[type], Mapping[str, Any]] = type.__dict__["__dict__"].__get__
class_name: Callable[[type], str] = type.__dict__["__name__"].__get__
qualified_name: Callable[[type], str] = type.__dict__["__qualname__"].__get__
_module: Callable[[type], Any] = type.__dict__["__module__"].__get__
_MISSING = object()


def is_one_of(kind: type, *kinds: type) -> bool:
    """Whether a class is one of these. (`in` would ask its metaclass whether they are equal.)"""
    return any(kind is each for each in kinds)


def module_of(thing: Any) -> str:
    """Return the name of the module that a class, a function or a method says it is from; nothing
    of others."""
    kind: Any = type(thing)
    name: Any = ""
    if issubclass(kind, type):
        try:
            name = _module(thing)
        except AttributeError:  # it was deleted
            return ""
    elif kind is FunctionType:
        name = thing.__module__
    elif kind is MethodType:
        return module_of(thing.__func__)
    return name if type(name) is str else ""


def declared_module(kind: type) -> str:
    """Return the name of the module that the statement of a class has run in; nothing of classes
    that are not written in Python, mostly."""
    name = namespace(kind).get("__module__")
    return name if type(name) is str else ""


def name_of_module(module: ModuleType) -> str:
    """Return the name of a module. (A module without one may have a `__getattr__`.)"""
    name = instance_dict(module).get("__name__")
    return name if type(name) is str else ""


def on_class(kind: type, name: str, default: Any = None) -> Any:
    """Return what a class or a base of it holds under a name, unbound."""
    for each in mro(kind):
        found = namespace(each).get(name, _MISSING)
        if found is not _MISSING:
            return found
    return default


def instance_dict(thing: Any) -> dict[str, Any]:
    """Return the attributes that an object itself has; none if its class keeps them elsewhere."""
    for each in mro(type(thing)):
        slot = namespace(each).get("__dict__", _MISSING)
        if slot is _MISSING:
            continue
        if is_one_of(type(slot), GetSetDescriptorType, MemberDescriptorType):
            try:
                found = slot.__get__(thing)
            except Exception:  # it has none after all
                return {}
            return found if type(found) is dict else {}
        return {}  # a property, say
    return {}


def attribute(thing: Any, name: str) -> Any:
    """Return an attribute of an object, a class or a module, unbound where it is one of its class;
    None if there is none, or only code of the program's knows it."""
    kind = type(thing)
    if issubclass(kind, type):
        found = on_class(thing, name, _MISSING)
        return None if found is _MISSING else _plain(found)
    found = on_class(kind, name, _MISSING)
    if type(found) is MemberDescriptorType:  # of `__slots__`
        try:
            return found.__get__(thing)
        except AttributeError:  # it was never set
            return None
    if found is not _MISSING and on_class(type(found), "__set__", _MISSING) is not _MISSING:
        return None  # it comes before what the object has
    own = instance_dict(thing)
    if name in own:
        return own[name]
    return None if found is _MISSING else _plain(found)


def _plain(found: Any) -> Any:
    return found.__func__ if is_one_of(type(found), staticmethod, classmethod) else found
