"""Objects of libraries that mean something by being that very object: `dataclasses.MISSING`.

One that is without state and stands in a module of a library is found there by name. A copy would
be equal to nothing.
"""

from __future__ import annotations

import importlib
import sys
from types import ModuleType
from typing import Any

from ..._loading.raw_attributes import (
    declared_module,
    instance_dict,
    is_one_of,
    mro,
    namespace,
    on_class,
)
from .user_code import is_own

_DEFAULT_WAY = ("__reduce__", "__reduce_ex__", "__getstate__")
_LARGEST = object.__basicsize__ + 16  # bytes: with a dict and weak references, but no slots
Place = tuple[str, str]  # a module, and a name in it


class LibraryObjects:
    """Where in libraries objects stand, as one pickler has found them."""

    def __init__(self) -> None:
        self._places: dict[type, dict[int, Place]] = {}

    def sentinel(self, thing: Any) -> Place | None:
        """Return where an object without state stands; None for others."""
        kind = type(thing)
        if kind not in self._places:
            self._places[kind] = _places_of(kind) if _has_no_state(kind) else {}
        place = self._places[kind].get(id(thing))
        return None if place is None or instance_dict(thing) else place

    def place(self, thing: Any) -> Place | None:
        """Return where an object stands, whatever its class."""
        kind = type(thing)
        if kind not in self._places:
            self._places[kind] = _places_of(kind)
        return self._places[kind].get(id(thing))


def _has_no_state(kind: type) -> bool:
    if kind is object:
        return True
    module = declared_module(kind)
    if not module or module == "builtins" or is_own(module) or kind.__basicsize__ > _LARGEST:
        return False
    if any("__slots__" in namespace(each) and namespace(each)["__slots__"] for each in mro(kind)):
        return False
    return all(on_class(kind, name) is object.__dict__.get(name) for name in _DEFAULT_WAY)


def _places_of(kind: type) -> dict[int, Place]:
    """Return where objects of a class stand: in modules of the package that the class is from; of
    classes that are everybody's, in all libraries."""
    top = declared_module(kind).partition(".")[0]
    found: dict[int, Place] = {}
    for name, module in list(sys.modules.items()):
        if not isinstance(module, ModuleType) or (top and name.partition(".")[0] != top):
            continue
        for each, value in list(vars(module).items()):
            if is_one_of(type(value), kind) and id(value) not in found and not is_own(name):
                found[id(value)] = name, each
    return found


def find(module: str, name: str) -> Any:
    return getattr(importlib.import_module(module), name)
