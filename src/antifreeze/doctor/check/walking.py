"""Which files are meant: folders are walked, and what git ignores is left out.

Inside a git work tree git itself is asked (`git ls-files`: the one program that surely reads
.gitignore as git does). Elsewhere, or without git, the folder is walked, and folders that nobody
means are left out.
"""

from __future__ import annotations

import os
import subprocess
from collections.abc import Iterable, Iterator
from pathlib import Path

from .settings import Settings, matches

SUFFIXES = (".py", ".ipynb")
GIT_S = 60.0  # seconds for `git ls-files`; a large work tree on a slow disk takes some
_NOBODY_MEANS = frozenset(
    {"__pycache__", "node_modules", "site-packages", "build", "dist", "venv", ".ipynb_checkpoints"}
)


def find_files(paths: Iterable[Path], settings: Settings) -> Iterator[Path]:
    """Give the files to check, in a stable order, each once. Files that are named are always
    meant. Raises FileNotFoundError for a path that is not there."""
    seen: set[Path] = set()
    for path in paths:
        if path.is_dir():
            inside = [each for each in _inside(path) if not _left_out(each, settings)]
        elif path.exists():
            inside = [path]
        else:
            raise FileNotFoundError(f"{path} is not there")
        for each in inside:
            if each not in seen:
                seen.add(each)
                yield each


def _left_out(path: Path, settings: Settings) -> bool:
    return matches(path, settings.exclude, settings.root)


def _inside(folder: Path) -> list[Path]:
    found = _asked_git(folder)
    if found is None:
        found = _walked(folder)
    return sorted(found)


def _asked_git(folder: Path) -> list[Path] | None:
    """Give what git tracks or would track; None if it cannot say."""
    command = ["git", "-C", str(folder), "ls-files", "-z", "--cached", "--others"]
    command += ["--exclude-standard", *(f"*{each}" for each in SUFFIXES)]
    try:
        done = subprocess.run(command, capture_output=True, timeout=GIT_S, check=False)
    except (OSError, subprocess.TimeoutExpired):
        return None
    if done.returncode != 0:
        return None
    names = [os.fsdecode(each) for each in done.stdout.split(b"\0") if each]
    if not names and _is_ignored(folder):
        return None  # somebody asks for a folder that git ignores: they mean it
    return [path for each in names if (path := folder / each).is_file()]


def _is_ignored(folder: Path) -> bool:
    command = ["git", "-C", str(folder), "check-ignore", "-q", "."]
    try:
        return (
            subprocess.run(command, capture_output=True, timeout=GIT_S, check=False).returncode == 0
        )
    except (OSError, subprocess.TimeoutExpired):
        return False


def _walked(folder: Path) -> list[Path]:
    found: list[Path] = []
    for here, folders, names in os.walk(folder):
        folders[:] = [
            each for each in folders if not each.startswith(".") and each not in _NOBODY_MEANS
        ]
        paths = (Path(here, name) for name in names if name.endswith(SUFFIXES))
        found += (path for path in paths if path.is_file())  # no dead links, no pipes
    return found
