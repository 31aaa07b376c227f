"""Decide what git ignores, as git does, without running git.

1. The last line of a file that fits decides; `!` takes back what an earlier one ignores.
2. A .gitignore wins over those above it, these over .git/info/exclude, and that over the user's own
   file. Nothing comes back inside a folder that is ignored: nobody looks into it.
3. Names are compared byte by byte, as git does: they are held as Latin-1.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from ...._linux.regular_files import read_regular
from .globs import SLASH, Glob, Text, git_glob

MOST_IGNORE_FILE_BYTES = 1_000_000  # bytes of one file; GitHub's largest template has 10,000
MOST_IGNORE_FILE_LINES = 20_000  # of one file; the rest of such a file is not read
# Of one walk: some ten seconds. After that nothing counts as ignored, so that more is looked at,
# not less. CPython's own tree takes 60,000.
MOST_MATCHING_STEPS = 30_000_000
_CONFIG_BYTES = 100_000  # of the user's own settings of git


@dataclass(slots=True)
class Steps:
    """What a walk may still spend on matching."""

    left: int = MOST_MATCHING_STEPS

    @property
    def are_spent(self) -> bool:
        return self.left <= 0


@dataclass(frozen=True, slots=True)
class _Line:
    """One pattern that has to be tried."""

    number: int
    glob: Glob
    of_path: bool  # it is compared with the path from the file's folder, not with the name
    only_folders: bool


class _Table:
    """The numbers of the last lines that name something outright, for folders and for files."""

    __slots__ = ("files", "folders")

    def __init__(self) -> None:
        self.files: dict[str, int] = {}
        self.folders: dict[str, int] = {}

    def add(self, text: str, number: int, *, only_folders: bool) -> None:
        self.folders[text] = number
        if not only_folders:
            self.files[text] = number

    def get(self, text: str, *, is_folder: bool) -> int:
        return (self.folders if is_folder else self.files).get(text, -1)


class IgnoreFile:
    """The patterns of one file. Most are plain names or `*.ending`, and are looked up."""

    __slots__ = ("_endings", "_globs", "_names", "_negative", "_paths")

    def __init__(self, data: bytes) -> None:
        self._names = _Table()
        self._paths = _Table()
        self._endings: dict[int, _Table] = {}
        self._globs: list[_Line] = []  # the last first
        self._negative: list[bool] = []
        for pattern in _patterns(data):
            self._add(pattern)
        self._globs.reverse()

    def __repr__(self) -> str:
        return f"IgnoreFile({len(self._negative)} patterns)"

    def __len__(self) -> int:
        return len(self._negative)

    def _add(self, pattern: str) -> None:
        number = len(self._negative)
        negative = pattern.startswith("!")
        pattern = pattern[negative:]
        only_folders = pattern.endswith(SLASH)
        pattern = pattern[: len(pattern) - only_folders]
        of_path = SLASH in pattern
        glob = git_glob(pattern.removeprefix(SLASH) if of_path else pattern)
        self._negative.append(negative)
        if glob.literal is not None:
            table = self._paths if of_path else self._names
            table.add(glob.literal, number, only_folders=only_folders)
        elif not of_path and glob.ending is not None:
            table = self._endings.setdefault(len(glob.ending), _Table())
            table.add(glob.ending, number, only_folders=only_folders)
        else:
            self._globs.append(_Line(number, glob, of_path, only_folders))

    def ignores(self, path: Text, name: Text, *, is_folder: bool, steps: Steps) -> bool | None:
        """Whether something is ignored; None if no pattern fits. `path` is from this file's folder
        on."""
        best = max(
            self._names.get(name.text, is_folder=is_folder),
            self._paths.get(path.text, is_folder=is_folder),
        )
        for length, table in self._endings.items():
            if length <= len(name.text):
                ending = name.text[len(name.text) - length :]
                best = max(best, table.get(ending, is_folder=is_folder))
        for each in self._globs:
            if each.number < best:
                break
            if each.only_folders and not is_folder:
                continue
            steps.left -= each.glob.cost
            if each.glob.matches(path if each.of_path else name):
                best = each.number
                break
        steps.left -= 1 + len(self._endings)
        return None if best < 0 else not self._negative[best]


def _patterns(data: bytes) -> Iterator[str]:
    text = data.removeprefix(b"\xef\xbb\xbf").decode("latin-1")
    for line in text.split("\n", MOST_IGNORE_FILE_LINES)[:MOST_IGNORE_FILE_LINES]:
        if line and not line.startswith("#"):
            pattern = _without_spaces(line.removesuffix("\r").partition("\0")[0])
            if pattern:
                yield pattern


def _without_spaces(line: str) -> str:
    """Cut spaces off the end, unless a backslash keeps them."""
    bare = line.rstrip(" ")
    escapes = len(bare) - len(bare.rstrip("\\"))
    return line[: len(bare) + 1] if escapes % 2 else bare


def read_ignore_file(path: str, *, follow: bool = False) -> IgnoreFile | None:
    """Read a file of patterns; None if there is none, or it is a link, as for git, or a pipe."""
    data = read_regular(path, MOST_IGNORE_FILE_BYTES, follow=follow)
    return IgnoreFile(data) if data else None


# ---- the user's own ------------------------------------------------------------------------------


def read_users_own() -> IgnoreFile | None:
    """Read what the user has git ignore everywhere. Only settings of the user say where that is:
    those of a repository are its author's."""
    path = _excludes_file() or os.path.join(_xdg(), "git", "ignore")
    return read_ignore_file(path, follow=True)


def _xdg() -> str:
    return os.environ.get("XDG_CONFIG_HOME") or os.path.expanduser("~/.config")


def _excludes_file() -> str:
    """Return what `core.excludesFile` says, where a plain line says it; '' if none does."""
    given = os.environ.get("GIT_CONFIG_GLOBAL")
    usual = [os.path.join(_xdg(), "git", "config"), os.path.expanduser("~/.gitconfig")]
    found = ""
    for path in [given] if given is not None else usual:
        data = read_regular(path, _CONFIG_BYTES, follow=True) or b""
        section = ""
        for line in data.decode("utf-8", errors="replace").splitlines():
            bare = line.strip()
            if bare.startswith("["):
                section = bare.lower()
            key, _, value = bare.partition("=")
            if section == "[core]" and key.strip().lower() == "excludesfile":
                found = os.path.expanduser(value.strip().strip('"'))
    return found if Path(found).is_absolute() else ""
