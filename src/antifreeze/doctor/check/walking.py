"""Which files are meant: folders are walked, and what git ignores is left out.

Inside a git work tree git itself is asked (`git ls-files`: the one program that surely reads
.gitignore as git does), and so is each work tree inside it: submodules, and others that nobody has
added. Elsewhere, or without git, the folder is walked, and folders that nobody means are left out.
"""

from __future__ import annotations

import os
import subprocess
from collections.abc import Iterable, Iterator
from pathlib import Path

from .settings import Settings, matches

SUFFIXES = (".py", ".ipynb")
GIT_S = 60.0  # seconds for `git ls-files`; a large work tree on a slow disk takes some
DEEPEST = 8  # work trees inside work trees
_OF_A_WORK_TREE = "160000"
_NOBODY_MEANS = frozenset(
    {"__pycache__", "node_modules", "site-packages", "build", "dist", "venv", ".ipynb_checkpoints"}
)


def find_files(paths: Iterable[Path], settings: Settings) -> Iterator[Path]:
    """Give the files to check, in a stable order, each once. Files that are named are always meant,
    unless excluding is forced. Raises FileNotFoundError for a path that is not there, OSError for
    one that is no regular file: a device may have no end."""
    every: dict[Path, Path] = {}  # by what they are, behind all links
    for path in paths:
        if path.is_dir():
            inside = [each for each in _inside(path) if not is_left_out(each, settings)]
        elif path.is_file():
            inside = [path]
            if settings.force_exclude and is_left_out(path, settings):
                continue
        elif path.exists():
            raise OSError(f"{path} is no regular file")
        else:
            raise FileNotFoundError(f"{path} is not there")
        for each in inside:
            real = Path(os.path.realpath(each))
            known = every.setdefault(real, each)
            if known.is_symlink() and not each.is_symlink():
                every[real] = each  # the file is told of at its own place
    yield from every.values()


def not_there(paths: Iterable[Path]) -> dict[Path, str]:
    """Return the paths that `find_files` would refuse, with the reason in words."""
    found: dict[Path, str] = {}
    for path in paths:
        if not path.exists():
            found[path] = "it is not there"
        elif not path.is_dir() and not path.is_file():
            found[path] = "it is no regular file"
    return found


def folders_without(paths: Iterable[Path], files: Iterable[Path]) -> list[Path]:
    """Give the folders that were named and have none of the files."""
    places = {place for each in files for place in each.parents}
    return [path for path in paths if path.is_dir() and path not in places]


def is_left_out(path: Path, settings: Settings) -> bool:
    return matches(path, settings.exclude, settings.root)


def _inside(folder: Path) -> list[Path]:
    found = _asked_git(folder)
    if found is None:
        found = _walked(folder)
    return sorted(found)


def _asked_git(folder: Path, depth: int = 0) -> list[Path] | None:
    """Give what git tracks or would track; None if it cannot say."""
    tracked = _git_lists(folder, "--cached", "--stage")
    others = _git_lists(folder, "--others", "--exclude-standard")
    if tracked is None or others is None:
        return None
    # `--stage` says "mode object stage<tab>name"; what has a work tree of its own has this mode.
    # Untracked ones are listed as folders.
    staged = [each.partition("\t") for each in tracked]
    names = [name for _, _, name in staged] + others
    within = [name for mode, _, name in staged if mode.startswith(_OF_A_WORK_TREE)]
    within += [name for name in others if name.endswith("/")]
    found = [folder / each for each in dict.fromkeys(names) if each.endswith(SUFFIXES)]
    found = [path for path in found if path.is_file()]
    for name in within if depth < DEEPEST else ():
        if _is_another(folder / name):
            inner = _asked_git(folder / name, depth + 1)
            found += inner if inner is not None else _walked(folder / name)
    if not found and not depth and _is_ignored(folder):
        return None  # somebody asks for a folder that git ignores: they mean it
    return found


def _is_another(folder: Path) -> bool:
    """Say whether a folder is a repository of its own: not a submodule that was never fetched, and
    not a second work tree of one (`git worktree add`), which has the same files again."""
    mark = folder / ".git"
    if mark.is_file():
        return "/worktrees/" not in mark.read_text(encoding="utf-8", errors="replace")
    return mark.is_dir()


def _git_lists(folder: Path, *options: str) -> list[str] | None:
    command = ["git", "-C", str(folder), "ls-files", "-z", *options]
    try:
        done = subprocess.run(command, capture_output=True, timeout=GIT_S, check=False)
    except (OSError, subprocess.TimeoutExpired):
        return None
    if done.returncode != 0:
        return None
    return [os.fsdecode(each) for each in done.stdout.split(b"\0") if each]


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
