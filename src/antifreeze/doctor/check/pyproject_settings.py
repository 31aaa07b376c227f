"""Read and validate `[tool.antifreeze.check]` of the nearest pyproject.toml.

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

import dataclasses
import re
import sys
from pathlib import Path
from typing import Any

from ..._reporting.untrusted_text import as_log_line, printable
from ..findings import Confidence
from ..pyproject import Say, read_upward, shown, shown_path
from .settings import ForPaths, Settings

_LISTS = ("select", "extend-select", "ignore", "exclude")
_KEYS = (*_LISTS, "confidence", "strict", "python-version", "per-path")

# Each pattern is tried on each file and on each folder above it.
MOST_LIST_WORDS = 1_000
LONGEST_WORD = 1_000  # characters


def read_settings(named: Path, say: Say | None = None) -> Settings:
    """Return the settings for a file or a folder: those of the nearest pyproject.toml with our
    table, or the defaults. The nearest one with `requires-python` decides which Python. Files that
    are passed over are reported to `say`, or else on stderr. Raise ValueError, with the file's
    name."""
    python: tuple[int, int] | None = None
    for each in read_upward(named, say or _warn):
        python = python or _oldest(each.requires_python)
        table = (each.table or {}).get("check")
        if table is not None:
            try:
                settings = _settings(table, each.path.parent, python)
            except ValueError as error:
                raise ValueError(f"{shown_path(each.path)}: {printable(str(error))}") from None
            return dataclasses.replace(settings, source=each.path)
    return Settings(root=named if named.is_dir() else named.parent, python=python)


def _warn(words: str) -> None:
    print(as_log_line(f"antifreeze check: {words}"), file=sys.stderr)


def _settings(table: Any, root: Path, python: tuple[int, int] | None) -> Settings:
    if not isinstance(table, dict):
        raise ValueError(f"tool.antifreeze.check is a table, not {shown(table)}")
    for key in table:
        if key.replace("_", "-") not in _KEYS:
            raise ValueError(f"there is no key {shown(key)}; there are {', '.join(_KEYS)}")
    given = {key.replace("_", "-"): value for key, value in table.items()}
    lists = {key: _words(given.get(key, []), key) for key in _LISTS}
    confidence = given.get("confidence", "likely")
    if confidence not in [each.value for each in Confidence]:
        raise ValueError(f"confidence is certain, likely or possible, not {shown(confidence)}")
    if not isinstance(strict := given.get("strict", False), bool):
        raise ValueError(f"strict is true or false, not {shown(strict)}")
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
        raise ValueError(f"{key} is a list of words, not {shown(value)}")
    if len(value) > MOST_LIST_WORDS or max(map(len, value), default=0) > LONGEST_WORD:
        raise ValueError(
            f"{key} has more than {MOST_LIST_WORDS:,} words, or one of {LONGEST_WORD:,}"
        )
    return tuple(value)


def _per_path(table: Any) -> tuple[ForPaths, ...]:
    if not isinstance(table, dict):
        raise ValueError(f"per-path is a table of patterns, not {shown(table)}")
    found = []
    if len(table) > MOST_LIST_WORDS or max(map(len, table), default=0) > LONGEST_WORD:
        raise ValueError(f"per-path has more than {MOST_LIST_WORDS:,} patterns, or one too long")
    for pattern, value in table.items():
        if not isinstance(value, dict) or not set(value) <= {"ignore", "select"}:
            raise ValueError(
                f"per-path: {shown(pattern)} takes ignore and select, not {shown(value)}"
            )
        ignore, select = (_words(value.get(key, []), key) for key in ("ignore", "select"))
        found.append(ForPaths((pattern,), ignore, select))
    return tuple(found)


def _version(value: Any) -> tuple[int, int]:
    match = re.fullmatch(r"(\d{1,4})\.(\d{1,4})", str(value))
    if match is None or not isinstance(value, str):
        raise ValueError(f'python-version is a string such as "3.14", not {shown(value)}')
    return int(match[1]), int(match[2])


def _oldest(requires: str) -> tuple[int, int] | None:
    match = re.search(r"(?:>=|~=|==)\s*(\d{1,4})\.(\d{1,4})", requires)
    return (int(match[1]), int(match[2])) if match is not None else None
