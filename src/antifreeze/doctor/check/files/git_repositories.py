"""Find git repositories by reading files: nothing is run, and their settings are not read."""

from __future__ import annotations

import os
import stat
from dataclasses import dataclass

from ...._linux.regular_files import read_regular
from .git_index import Index, read_index
from .gitignore import IgnoreFile, read_ignore_file

MARK = ".git"
_POINTER_BYTES = 10_000  # of a file that says where the repository is: one path
_POINTS = b"gitdir: "


@dataclass(frozen=True, slots=True)
class Repository:
    """A work tree, and what its repository knows of it."""

    root: str
    index: Index
    exclude: IgnoreFile | None  # .git/info/exclude


def open_repository(root: str) -> Repository | None:
    """Return the repository whose work tree a folder is; None if it is none that git would take."""
    folder = _git_folder(root)
    if folder is None:
        return None
    exclude = read_ignore_file(os.path.join(_common(folder), "info", "exclude"))
    return Repository(root, read_index(folder), exclude)


def is_second_work_tree(root: str) -> bool:
    """Whether a folder was made by `git worktree add`: it has the files of another one again."""
    pointer = (read_regular(os.path.join(root, MARK), _POINTER_BYTES) or b"").strip()
    return pointer.rpartition(b"/")[0].endswith(b"/worktrees")  # not a submodule of such a one


def root_above(folder: str) -> str | None:
    """Return the nearest work tree that a folder, given without links, is in."""
    while True:
        if os.path.lexists(os.path.join(folder, MARK)) and _git_folder(folder) is not None:
            return folder
        above = os.path.dirname(folder)
        if above == folder:
            return None
        folder = above


def _git_folder(root: str) -> str | None:
    """Return where the repository of a work tree is: .git, or where a file of that name points."""
    mark = os.path.join(root, MARK)
    try:
        mode = os.stat(mark).st_mode
    except (OSError, ValueError):
        return None
    if not stat.S_ISDIR(mode):
        data = read_regular(mark, _POINTER_BYTES)
        if data is None or not data.startswith(_POINTS):
            return None
        mark = os.path.join(root, _as_path(data[len(_POINTS) :]))
    common = _common(mark)
    whole = os.path.lexists(os.path.join(mark, "HEAD")) and all(
        os.path.isdir(os.path.join(common, each)) for each in ("objects", "refs")
    )
    return mark if whole else None


def _common(folder: str) -> str:
    """Return what a second work tree shares with the first one."""
    data = read_regular(os.path.join(folder, "commondir"), _POINTER_BYTES)
    return os.path.join(folder, _as_path(data)) if data else folder


def _as_path(data: bytes) -> str:
    return os.fsdecode(data.rstrip(b"\r\n").partition(b"\0")[0])
