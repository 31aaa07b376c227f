"""Objects whose `__reduce__` gives a name: the global of that name in their module.

In a library it is found there. In a module of the program's own, which is not imported there, it is
made anew with what it has here, and stands under that name.
"""

from __future__ import annotations

import functools
import os
import sys
from types import FunctionType, ModuleType
from typing import Any

from ...._loading.dataset_walk import has_own
from ...._loading.raw_attributes import instance_dict, on_class
from ..unsendable import Unsendable
from .lost_state import fill, own_slots


def makes_itself_anew(kind: type) -> bool:
    """Whether code of a class runs where its objects arrive: people open what each worker should
    have of its own there, and so do libraries."""
    return has_own(kind, "__setstate__", "__reduce__", "__reduce_ex__")


def asks_class(kind: type) -> bool:
    """Whether a class has Python code for how its objects are sent."""
    ways = (on_class(kind, "__reduce__"), on_class(kind, "__reduce_ex__"))
    return any(type(way) is FunctionType for way in ways)


def is_found(thing: Any, script: bool) -> bool:
    """Whether a new process finds this very thing under its name."""
    name = getattr(thing, "__module__", None) or ""
    module = sys.modules.get(name)
    if module is None or (name == "__main__" and not (script and _is_script_a_file())):
        return False
    found: Any = module
    for step in thing.__qualname__.split("."):
        found = getattr(found, step, None)
    return found is thing


def _is_script_a_file() -> bool:
    main: ModuleType = sys.modules["__main__"]
    if getattr(main, "__spec__", None) is not None:
        return True
    path = getattr(main, "__file__", None)  # there is none in a notebook or at a prompt
    return path is not None and os.path.isfile(path)


def is_the_global(thing: Any, module: str, name: str) -> bool:
    """Whether a module has this object under a name."""
    try:
        found = functools.reduce(getattr, name.split("."), sys.modules[module])
    except (AttributeError, KeyError):
        return False
    return found is thing


def module_with(thing: Any, name: str) -> str | None:
    """Return the module where pickle would look for an object."""
    module = getattr(thing, "__module__", None)
    if module is not None:
        return module if type(module) is str else None
    for each in list(sys.modules):
        if each not in ("__main__", "__mp_main__") and is_the_global(thing, each, name):
            return each
    return "__main__"


def reduce_content(thing: Any) -> Any:
    """Return how to make an object anew from what it has, whatever its class says about that.
    Raises Unsendable."""
    kind = type(thing)
    try:
        object.__new__(kind)
    except TypeError:
        raise Unsendable(f"a {kind.__name__} that is found by its name alone") from None
    slots = own_slots(thing, lambda each: each is not object)
    return object.__new__, (kind,), (instance_dict(thing), slots), None, None, fill
