"""Settings of libraries that are kept in no attribute: read, and set, by functions of their own."""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Any

# Of a module, if the program has imported it: how to read a setting and how to set it.
_SETTINGS: dict[str, tuple[str, Callable[[Any], Any], Callable[[Any, Any], object]]] = {
    "numpy errors": ("numpy", lambda m: m.geterr(), lambda m, v: m.seterr(**v)),
    "numpy printing": (
        "numpy",
        lambda m: m.get_printoptions(),
        lambda m, v: m.set_printoptions(**v),
    ),
    "longest integer": (
        "sys",
        lambda m: m.get_int_max_str_digits(),
        lambda m, v: m.set_int_max_str_digits(v),
    ),
    "largest field": ("csv", lambda m: m.field_size_limit(), lambda m, v: m.field_size_limit(v)),
    "decimal numbers": ("decimal", lambda m: m.getcontext(), lambda m, v: m.setcontext(v)),
    "locale": ("locale", lambda m: m.setlocale(m.LC_ALL), lambda m, v: m.setlocale(m.LC_ALL, v)),
}


def collect() -> dict[str, Any]:
    found = {}
    for name, (module, read, _) in _SETTINGS.items():
        if module in sys.modules:
            found[name] = read(sys.modules[module])
    return found


def apply(told: dict[str, Any]) -> None:
    """Set what is otherwise here."""
    for name, value in told.items():
        module, read, write = _SETTINGS[name]
        there = __import__(module)
        if repr(read(there)) != repr(value):
            write(there, value)
