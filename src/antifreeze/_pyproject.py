"""pyproject.toml: what it has for us. Whatever else is wrong with it is nothing to us."""

from __future__ import annotations

import tomllib
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

FILE = "pyproject.toml"
_OURS = "antifreeze"


@dataclass(frozen=True, slots=True)
class Pyproject:
    """One file."""

    path: Path
    table: dict[str, Any] | None  # [tool.antifreeze]
    requires_python: str = ""


def read_upward(folder: Path) -> Iterator[Pyproject]:
    """Give the files of a folder and of those above it, the nearest first. Raises ValueError, with
    the file's name, where one that speaks of us cannot be understood."""
    for place in (folder, *folder.parents):
        path = place / FILE
        if path.is_file():
            yield _read(path)


def _read(path: Path) -> Pyproject:
    text = path.read_text(encoding="utf-8", errors="replace")
    try:
        whole = tomllib.loads(text)
    except (tomllib.TOMLDecodeError, RecursionError) as error:
        if _OURS in text:
            raise ValueError(f"{path}: {error}") from None
        return Pyproject(path, None)
    project, tool = whole.get("project"), whole.get("tool")
    table = tool.get(_OURS) if isinstance(tool, dict) else None
    if table is not None and not isinstance(table, dict):
        raise ValueError(f"{path}: tool.{_OURS} is a table, not {table!r}")
    requires = project.get("requires-python") if isinstance(project, dict) else None
    return Pyproject(path, table, requires if isinstance(requires, str) else "")
