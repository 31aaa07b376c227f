"""`[tool.antifreeze]` in pyproject.toml: found from a folder upward, read, and checked for keys."""

from __future__ import annotations

from collections.abc import Collection
from pathlib import Path
from typing import Any

from .._pyproject import read_upward

OTHERS = ("check",)  # tables of other verbs
PATHS = ("fault_log", "quarantine")  # those that are not absolute are of the file's own folder


def read(folder: Path, known: Collection[str]) -> dict[str, Any]:
    """Give the values of the nearest file with such a table, by the names of the options; none if
    there is no such file. Raises ValueError, with the file's name."""
    for each in read_upward(folder):
        if each.table is not None:
            return dict(
                _value(each.path, key, value, known)
                for key, value in each.table.items()
                if key not in OTHERS
            )
    return {}


def _value(path: Path, key: str, value: Any, known: Collection[str]) -> tuple[str, Any]:
    name = key.replace("-", "_")
    if name not in known:
        there = ", ".join(each.replace("_", "-") for each in known)
        raise ValueError(f"{path}: there is no key {key!r} in [tool.antifreeze]; there are {there}")
    if isinstance(value, str):
        if name in PATHS:
            value = str(path.parent / value)
        elif value == "none":  # TOML has no word for it
            value = None
    return name, value
