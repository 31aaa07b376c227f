"""Arguments of torch's loader that a later torch has added, and this package does not know.

1. Our constructor takes them, its signature shows them with torch's defaults, and torch's
   constructor gets them. A torch without any leaves our constructor as it is written.
2. A loader that was given torch's default runs on our engine. One that was given another value has
   torch's own iterator, and a notice names the argument: we do not know how to honour it.
3. The signature is that of a real function, which shares its defaults with our constructor: they
   change with `install()` (see `_engine/defaults.py`), and trainers read them.
"""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Mapping
from typing import Any

_GIVEN = "_new_arguments"  # the attribute of a loader
_BY_NAME = (inspect.Parameter.KEYWORD_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)


def parameters_of(function: Callable[..., Any]) -> dict[str, inspect.Parameter]:
    """Return the parameters of a constructor of torch's that can be given by name."""
    found = inspect.signature(function).parameters
    return {name: it for name, it in found.items() if name != "self" and it.kind in _BY_NAME}


def takes_any(function: Callable[..., Any]) -> bool:
    """Whether a constructor hides its parameters: somebody has put `**kwargs` around it."""
    kinds = {each.kind for each in inspect.signature(function).parameters.values()}
    return inspect.Parameter.VAR_KEYWORD in kinds


def widened(init: Any, new: Mapping[str, Any]) -> Any:
    """Return a constructor that takes new arguments, too, by name and with these defaults; the same
    one if there are none."""
    if not new:
        return init
    init.__kwdefaults__.update(new)  # it ignores what it has no parameter for

    @functools.wraps(_shape(init, new))
    def __init__(self: Any, *arguments: Any, **named: Any) -> None:
        vars(self)[_GIVEN] = {name: named.pop(name, default) for name, default in new.items()}
        init(self, *arguments, **named)

    return __init__


def _shape(init: Any, new: Mapping[str, Any]) -> Any:
    """Return a function with the parameters of a constructor and the new ones, which does nothing.
    Its defaults are those of the constructor: the same dict."""
    code = init.__code__
    positional = code.co_varnames[: code.co_argcount]
    by_name = code.co_varnames[code.co_argcount : code.co_argcount + code.co_kwonlyargcount]
    made: dict[str, Any] = {}
    exec(f"def {init.__name__}({', '.join([*positional, '*', *by_name, *new])}): ...", made)
    shape = made[init.__name__]
    shape.__defaults__, shape.__kwdefaults__ = init.__defaults__, init.__kwdefaults__
    shape.__annotations__ = init.__annotations__
    for name in ("__module__", "__qualname__", "__doc__"):
        setattr(shape, name, getattr(init, name))
    return shape


def given_to(loader: Any) -> dict[str, Any]:
    """Return the new arguments that a loader was given, to be passed on."""
    given: dict[str, Any] = vars(loader).get(_GIVEN, {})
    return given


def show_on(loader: Any) -> None:
    """Have the new arguments as public attributes, as trainers expect, where torch has not."""
    for name, value in given_to(loader).items():
        if not hasattr(loader, name):
            setattr(loader, name, value)


def unknown_to_us(loader: Any, new: Mapping[str, Any]) -> list[str]:
    """Name the new arguments of a loader that do not have torch's default."""
    if not new:
        return []
    given = given_to(loader)  # one made past our constructor has attributes only
    values = {name: given.get(name, getattr(loader, name, new[name])) for name in new}
    return [name for name, value in values.items() if not _is_same(value, new[name])]


def _is_same(value: Any, default: Any) -> bool:
    try:
        return value is default or (type(value) is type(default) and bool(value == default))
    except Exception:  # arrays, and objects of the user's own making
        return False
