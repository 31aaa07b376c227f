"""`[tool.antifreeze.check]` in pyproject.toml: found from a folder upward, read and checked.

[tool.antifreeze.check]
select = ["AF1", "AF2"]              # instead of all that are on by default
extend-select = ["AF9"]              # these too
ignore = ["loader-made-in-the-loop"]
exclude = ["third_party", "*.ipynb"]
confidence = "possible"              # the least sure that is shown; default: likely
strict = true                        # allows that silence nothing are reported
python-version = "3.14"              # the oldest that runs it; default: requires-python

[tool.antifreeze.check.per-path]
"tests/**" = { ignore = ["AF5"] }
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

from ..._pyproject import read_upward
from ..findings import Confidence
from .settings import ForPaths, Settings

_LISTS = ("select", "extend-select", "ignore", "exclude")
_KEYS = (*_LISTS, "confidence", "strict", "python-version", "per-path")


def read_settings(folder: Path) -> Settings:
    """Give the settings of the nearest pyproject.toml with our table, or the defaults. The nearest
    one with `requires-python` says which Python. Raises ValueError, with the file's name."""
    python: tuple[int, int] | None = None
    for each in read_upward(folder.resolve()):
        python = python or _oldest(each.requires_python)
        table = (each.table or {}).get("check")
        if table is not None:
            try:
                return _settings(table, each.path.parent, python)
            except ValueError as error:
                raise ValueError(f"{each.path}: {error}") from None
    return Settings(root=folder, python=python)


def _settings(table: Any, root: Path, python: tuple[int, int] | None) -> Settings:
    if not isinstance(table, dict):
        raise ValueError(f"tool.antifreeze.check is a table, not {table!r}")
    for key in table:
        if key.replace("_", "-") not in _KEYS:
            raise ValueError(f"there is no key {key!r}; there are {', '.join(_KEYS)}")
    given = {key.replace("_", "-"): value for key, value in table.items()}
    lists = {key: _words(given.get(key, []), key) for key in _LISTS}
    confidence = given.get("confidence", "likely")
    if confidence not in [each.value for each in Confidence]:
        raise ValueError(f"confidence is certain, likely or possible, not {confidence!r}")
    if not isinstance(strict := given.get("strict", False), bool):
        raise ValueError(f"strict is true or false, not {strict!r}")
    return Settings(
        root=root,
        select=lists["select"],
        extend_select=lists["extend-select"],
        ignore=lists["ignore"],
        exclude=lists["exclude"],
        confidence=Confidence(confidence),
        strict=strict,
        python=_version(given["python-version"]) if "python-version" in given else python,
        for_paths=_per_path(given.get("per-path", {})),
    )


def _words(value: Any, key: str) -> tuple[str, ...]:
    if not isinstance(value, list) or not all(isinstance(each, str) for each in value):
        raise ValueError(f"{key} is a list of words, not {value!r}")
    return tuple(value)


def _per_path(table: Any) -> tuple[ForPaths, ...]:
    if not isinstance(table, dict):
        raise ValueError(f"per-path is a table of patterns, not {table!r}")
    found = []
    for pattern, value in table.items():
        if not isinstance(value, dict) or not set(value) <= {"ignore", "select"}:
            raise ValueError(f"per-path: {pattern!r} takes ignore and select, not {value!r}")
        ignore, select = (_words(value.get(key, []), key) for key in ("ignore", "select"))
        found.append(ForPaths((pattern,), ignore, select))
    return tuple(found)


def _version(value: Any) -> tuple[int, int]:
    match = re.fullmatch(r"(\d+)\.(\d+)", str(value))
    if match is None or not isinstance(value, str):
        raise ValueError(f'python-version is a string such as "3.14", not {value!r}')
    return int(match[1]), int(match[2])


def _oldest(requires: str) -> tuple[int, int] | None:
    match = re.search(r"(?:>=|~=|==)\s*(\d+)\.(\d+)", requires)
    return (int(match[1]), int(match[2])) if match is not None else None
