"""`[tool.antifreeze]` in pyproject.toml: found, read, and checked for keys."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from .._reporting.untrusted_text import printable
from ..doctor.pyproject import LONGEST_SHOWN, Say, read_upward, shown, shown_path

OTHERS = ("check",)  # tables of other verbs
PATHS = ("fault_log", "quarantine")  # those that are not absolute are of the file's own folder


@dataclass(frozen=True, slots=True)
class Configuration:
    """The values of one file, by the names of the options."""

    values: dict[str, Any] = field(default_factory=dict)
    source: Path | None = None

    def told(self, names: Iterable[str]) -> str:
        """Return what is used of it, and of which file, in one line; empty if it is nothing."""
        used = [name for name in names if name in self.values]
        if self.source is None or not used:
            return ""
        return f"{', '.join(map(self._one, used))}, from {shown_path(self.source)}"

    def _one(self, name: str) -> str:
        value = self.values[name]
        text = "none" if value is None else printable(str(value), LONGEST_SHOWN)
        return f"{name.replace('_', '-')}={text}"


def read(named: Path, known: Collection[str], say: Say, *, trust_owner: bool) -> Configuration:
    """Return the values of the nearest file with such a table; none if there is no such file.
    Raises ValueError, with the file's name."""
    for each in read_upward(named, say, trust_owner=trust_owner):
        if each.table is not None:
            values = dict(
                _value(each.path, key, value, known)
                for key, value in each.table.items()
                if key not in OTHERS
            )
            return Configuration(values, each.path)
    return Configuration()


def _value(path: Path, key: str, value: Any, known: Collection[str]) -> tuple[str, Any]:
    name = key.replace("-", "_")
    if name not in known:
        there = ", ".join(each.replace("_", "-") for each in known)
        raise ValueError(
            f"{shown_path(path)}: there is no key {shown(key)} in [tool.antifreeze]; there are"
            f" {there}"
        )
    if isinstance(value, str):
        if name in PATHS:
            value = str(path.parent / value)
        elif value == "none":  # TOML has no word for it
            value = None
    return name, value
