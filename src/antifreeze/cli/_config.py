"""`[tool.antifreeze]` in pyproject.toml: found from a folder upward, read, and checked for keys."""

from __future__ import annotations

import tomllib
from collections.abc import Collection
from pathlib import Path
from typing import Any

FILE = "pyproject.toml"
OTHERS = ("check",)  # tables of other verbs
PATHS = ("fault_log", "quarantine")  # those that are not absolute are of the file's own folder


def read(folder: Path, known: Collection[str]) -> dict[str, Any]:
    """Give the values of the nearest file with such a table, by the names of the options; none if
    there is no such file. Raises ValueError, with the file's name."""
    for place in (folder, *folder.parents):
        path = place / FILE
        if path.is_file() and (table := _table(path)) is not None:
            return dict(
                _value(path, key, value, known) for key, value in table.items() if key not in OTHERS
            )
    return {}


def _table(path: Path) -> dict[str, Any] | None:
    text = path.read_text(encoding="utf-8", errors="replace")
    if "antifreeze" not in text:  # and if it were broken, it would be nothing to us
        return None
    try:
        table = tomllib.loads(text).get("tool", {}).get("antifreeze")
    except tomllib.TOMLDecodeError as error:
        raise ValueError(f"{path}: {error}") from None
    if table is not None and not isinstance(table, dict):
        raise ValueError(f"{path}: tool.antifreeze is a table, not {table!r}")
    return table


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
