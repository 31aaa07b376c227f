"""The known ways in which a program hangs or crawls: a pure module each, its page beside it."""

from __future__ import annotations

import functools
import importlib
import pkgutil

from .base import Cause

__all__ = ["Cause", "all_causes"]
_NO_CAUSES = ("base", "page")


@functools.cache
def all_causes() -> tuple[Cause, ...]:
    """Return all causes, by name."""
    names = (each.name for each in pkgutil.iter_modules(__path__) if each.name not in _NO_CAUSES)
    found = [importlib.import_module(f"{__name__}.{name}").CAUSE for name in names]
    return tuple(sorted(found, key=lambda each: str(each.name)))
