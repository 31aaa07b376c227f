"""Find and read pyproject.toml: which files count, and what they hold for us.

1. Only files of the project count: from the folder of what is named up to the nearest folder with
   `.git` or `.hg`. Without one, the nearest folder with a pyproject.toml is the project.
2. Only files count that belong to the user, to root, or to the owner of what is named: whoever
   wrote the script that is about to run gains nothing by its settings. The same holds for links,
   for what they point to, and for `.git`. A link that leads out of the project is not followed:
   a message of ours would show what stands there.
3. A file is opened only if it is a regular one, and parsed only if that takes seconds at most.
   Faults in files that do not mention us are not ours to report.
"""

from __future__ import annotations

import contextlib
import os
import tomllib
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from .._linux.regular_files import NotRegular, open_regular
from .._reporting.untrusted_text import printable

FILE = "pyproject.toml"
MARKERS = (".git", ".hg")  # of a project's root; a file in worktrees and submodules of git
LARGEST = 1_000_000  # bytes; the largest of well-known projects have 100,000
# Steps of tomllib, which takes a table's whole name apart at each key in it: about two seconds.
MOST_STEPS = 10_000_000
DEEPEST = 8  # tables and lists inside of each other in our table; the keys we know need three
LARGEST_NUMBER = 2**63  # integers of TOML have 64 bits; Python refuses to print much larger ones
LONGEST_SHOWN = 200  # characters of a value or a parser's message that are shown
_OURS = "antifreeze"

Say = Callable[[str], None]


@dataclass(frozen=True, slots=True)
class Pyproject:
    """One file."""

    path: Path
    table: dict[str, Any] | None  # [tool.antifreeze]
    requires_python: str = ""


class _PassedOver(Exception):
    """A file that is not used, with the reason."""


def read_upward(named: Path, say: Say, *, trust_owner: bool = True) -> Iterator[Pyproject]:
    """Yield the files that count for a script, a module's folder or a path to check, the nearest
    first. Files that are passed over are reported to `say`. Without `trust_owner` the owner of what
    is named is like anybody else.

    Raises ValueError, with the file's name, if one that mentions us cannot be understood.
    """
    folder = (named if named.is_dir() else named.parent).resolve()
    owners = frozenset({0, os.geteuid(), *(_owner(named, folder) if trust_owner else ())})
    root = next((each for each in (folder, *folder.parents) if _is_root(each, owners)), None)
    for place in (folder, *folder.parents):
        path = place / FILE
        try:
            _check_link(path, str(root or place))
            found = _read(path, owners)
        except _PassedOver as why:
            say(f"{shown_path(path)} is not used: {why}")
            found = None
        if found is not None:
            yield found
        if place == root or (root is None and found is not None):
            return


def shown(value: object) -> str:
    """Return a value of a file as a message may show it."""
    return printable(repr(value), LONGEST_SHOWN)


def shown_path(path: Path) -> str:
    return printable(str(path))


def _owner(named: Path, folder: Path) -> Iterator[int]:
    for path in (folder if named.is_dir() else folder / named.name, folder):
        with contextlib.suppress(OSError):  # no such file yet: an editor's, on standard input
            yield os.lstat(path).st_uid
            return


def _is_root(folder: Path, owners: frozenset[int]) -> bool:
    for name in MARKERS:
        with contextlib.suppress(OSError):
            if os.lstat(folder / name).st_uid in owners:
                return True
    return False


# ---- opening -------------------------------------------------------------------------------------


def _read(path: Path, owners: frozenset[int]) -> Pyproject | None:
    """Return what a file holds; None if there is none. Raises _PassedOver, or ValueError."""
    try:
        _check_owner(os.lstat(path), owners)
        data = _bytes(path, owners)
    except (FileNotFoundError, NotADirectoryError):
        return None
    except OSError as error:
        raise ValueError(f"{shown_path(path)}: {error.strerror}") from None
    text = data.decode(errors="replace")
    try:
        if len(data) > LARGEST:
            raise ValueError(f"the file is larger than {LARGEST:,} bytes")
        return _understood(path, text)
    except (ValueError, RecursionError, OverflowError, MemoryError) as error:
        words = printable(str(error), LONGEST_SHOWN)
        if _OURS in text:
            raise ValueError(f"{shown_path(path)}: {words}") from None
        if len(data) > LARGEST:
            raise _PassedOver(words) from None
        return Pyproject(path, None)


def _check_link(path: Path, project: str) -> None:
    """Raise _PassedOver for a link that leads out of the project."""
    if not path.is_symlink():
        return
    if not os.path.realpath(path).startswith(project.rstrip("/") + "/"):
        raise _PassedOver("it is a link that leads out of the project")


def _bytes(path: Path, owners: frozenset[int]) -> bytes:
    """Return the beginning of a regular file of these owners'. What was looked at is what is
    read."""
    try:
        descriptor = open_regular(path, follow=True)
    except NotRegular as why:
        raise _PassedOver(str(why)) from None
    with open(descriptor, "rb") as file:
        _check_owner(os.fstat(descriptor), owners)
        return file.read(LARGEST + 1)


def _check_owner(status: os.stat_result, owners: frozenset[int]) -> None:
    if status.st_uid not in owners:
        raise _PassedOver(
            f"it belongs to another user (uid {status.st_uid}), who is neither root nor the owner"
            " of what was named"
        )


# ---- understanding -------------------------------------------------------------------------------


def _understood(path: Path, text: str) -> Pyproject:
    longest = max((line.count(".") for line in text.split("\n")), default=0)
    if longest * (text.count(".") + text.count("=") + text.count("[")) > MOST_STEPS:
        raise ValueError("it has keys of too many parts")
    whole = tomllib.loads(text)
    project, tool = whole.get("project"), whole.get("tool")
    table = tool.get(_OURS) if isinstance(tool, dict) else None
    _check_bounds(table)
    if table is not None and not isinstance(table, dict):
        raise ValueError(f"tool.{_OURS} is a table, not {shown(table)}")
    requires = project.get("requires-python") if isinstance(project, dict) else None
    return Pyproject(path, table, requires if isinstance(requires, str) else "")


def _check_bounds(value: Any) -> None:
    """Raise ValueError for what could not be compared or printed."""
    level = [value]
    for _ in range(DEEPEST + 1):
        for each in level:
            if isinstance(each, int) and not -LARGEST_NUMBER <= each < LARGEST_NUMBER:
                raise ValueError("an integer has more than 64 bits")
        lists = [each.values() if isinstance(each, dict) else each for each in level]
        level = [inner for each in lists if _is_container(each) for inner in each]
    if level:
        raise ValueError(f"more than {DEEPEST} tables or lists stand inside of each other")


def _is_container(value: Any) -> bool:
    return not isinstance(value, str) and hasattr(value, "__iter__")
