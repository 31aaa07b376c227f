"""Which versions of torch and Python the tests have run on: `make compat` writes the file."""

from __future__ import annotations

import json
import re
import sys
import sysconfig
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from .._core.frozen_values import frozen

FILE = Path(__file__).with_name("tested_versions.json")


@frozen
class Run:
    """One run of the tests: a row of docs/compatibility.md."""

    torch: str
    python: str
    antifreeze: str
    date: str  # ISO
    passed: int
    failed: int
    skipped: int
    minutes: float


def read(file: Path = FILE) -> list[Run]:
    """Return what ran, as far as the file says so; nothing if there is none that can be read."""
    try:
        rows = json.loads(file.read_text())
        return [Run(**row) for row in rows]
    except (OSError, ValueError, TypeError):
        return []


def this_python() -> str:
    """Return the version of this Python, with a "t" if it is a free-threaded one."""
    free = "t" if sysconfig.get_config_var("Py_GIL_DISABLED") else ""
    return ".".join(map(str, sys.version_info[:3])) + free


def find(runs: Iterable[Run], torch: str, python: str) -> Run | None:
    """Return the latest run on this torch, whatever its build, and on this minor version of
    Python."""
    wanted = _release(torch), minor(python)
    found = [each for each in runs if (_release(each.torch), minor(each.python)) == wanted]
    return max(found, key=lambda each: each.date, default=None)


def in_words(runs: list[Run], torch: str, python: str) -> str:
    """Say whether these versions were tested, and what was tested if they were not."""
    run = find(runs, torch, python)
    if run is not None:
        said = f"yes, on {run.date} with antifreeze {run.antifreeze}: {run.passed:,} tests passed"
        return said + (f", {run.failed:,} failed" if run.failed else "")
    if not runs:
        return "untested: no run of the tests is recorded"
    same = {minor(each.python) for each in runs if _release(each.torch) == _release(torch)}
    if same:
        return f"untested: torch {_release(torch)} was tested on Python {_listed(same)}"
    return f"untested: the tests ran on torch {_listed({_release(each.torch) for each in runs})}"


def _release(version: str) -> str:
    """Return "2.13.0" of "2.13.0+cpu"."""
    return version.partition("+")[0]


def minor(python: str) -> str:
    """Return "3.13" of "3.13.1", and "3.13t" of a free-threaded "3.13.1t"."""
    return ".".join(python.split(".")[:2]) + ("t" if python.endswith("t") else "")


def _listed(versions: Iterable[str]) -> str:
    def numbers(version: str) -> tuple[Any, ...]:
        return *map(int, re.findall(r"\d+", version)), version

    return ", ".join(sorted(versions, key=numbers))
