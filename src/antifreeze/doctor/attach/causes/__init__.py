"""The known ways in which a program hangs or crawls: one file each, pure."""

from __future__ import annotations

import functools
import importlib
import pkgutil

from .base import Cause

__all__ = ["Cause", "all_causes"]


@functools.cache
def all_causes() -> tuple[Cause, ...]:
    """Give all causes, by name."""
    names = (each.name for each in pkgutil.iter_modules(__path__) if each.name != "base")
    found = [importlib.import_module(f"{__name__}.{name}").CAUSE for name in names]
    return tuple(sorted(found, key=lambda each: str(each.name)))
