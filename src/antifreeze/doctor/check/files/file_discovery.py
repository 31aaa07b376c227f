"""Find the files to check: folders are walked, and what git ignores is left out.

Nothing is run for it: git runs programs that a repository's own settings name. Inside a work tree
we read what git reads (.gitignore, the index). Each work tree inside it, a submodule or one that
nobody has added, has rules of its own. Elsewhere the folder is walked, and folders that nobody
means are left out.
"""

from __future__ import annotations

import os
import stat
import sys
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from ..settings import Settings, matches
from .git_repositories import MARK, Repository, is_second_work_tree, open_repository, root_above
from .gitignore import IgnoreFile, Steps, read_ignore_file, read_users_own
from .globs import Text
from .symlinks import LinkLeadsOut, resolve
from .tracked_files import TrackedFiles

SUFFIXES = (".py", ".ipynb")
IGNORE_FILE = ".gitignore"
# Steps for each pattern of a file: what it takes to read one, beside trying one.
READ_STEPS_PER_PATTERN = 10
_SKIPPED_FOLDERS = frozenset(
    {"__pycache__", "node_modules", "site-packages", "build", "dist", "venv", ".ipynb_checkpoints"}
)


@dataclass(slots=True)
class WalkResult:
    """What was found in folders, and named."""

    files: list[Path] = field(default_factory=list)
    led_out: list[Path] = field(default_factory=list)  # links that lead out: they are left out
    is_whole: bool = True  # False: too many patterns to ask them all


def walk(paths: Sequence[Path], settings: Settings) -> WalkResult:
    """Find the files to check, in a stable order, each once. Files that are named are always meant,
    unless excluding is forced. Raise FileNotFoundError for a path that is not there, OSError for
    one that is not a regular file, since a device may have no end, or leads out of its project.
    """
    done = WalkResult()
    every: dict[str, Path] = {}  # by what they are, behind all links
    places: dict[str, str] = {}
    refused = refused_paths(paths)
    for path in paths:
        if path in refused:
            kind = OSError if os.path.lexists(path) else FileNotFoundError
            raise kind(f"{path}: {refused[path]}")
        is_folder = path.is_dir()
        tree = _Tree(path)
        for each in tree.find() if is_folder else [path]:
            real = _real(each, places)
            if (is_folder or settings.force_exclude) and is_left_out(each, settings, real):
                continue
            known = every.setdefault(real, each)
            if known is not each and known.is_symlink() and not each.is_symlink():
                every[real] = each  # the file is reported at its own place
        led_out = dict.fromkeys(tree.led_out)  # one that is tracked was met twice
        done.led_out += (each for each in led_out if not is_left_out(each, settings))
        done.is_whole = done.is_whole and not tree.steps.are_spent
        if tree.tracked.left_out:
            words = f"left out: {tree.tracked.left_out:,} tracked files behind too many links"
            print(f"antifreeze check: {words}", file=sys.stderr)
    done.files = list(every.values())
    return done


def _real(path: Path, places: dict[str, str]) -> str:
    """Return where a file is, behind all links; `places`: folders that were asked for before."""
    folder, name = os.path.split(path)
    if os.path.islink(path) or name in ("", ".", ".."):
        return os.path.realpath(path)
    if folder not in places:
        places[folder] = os.path.realpath(folder)
    return os.path.join(places[folder], name)


def refused_paths(paths: Iterable[Path]) -> dict[Path, str]:
    """Return the paths that `walk` would refuse, with the reason in words."""
    found: dict[Path, str] = {}
    for path in paths:
        try:
            resolve(path)
            mode = path.stat().st_mode
        except LinkLeadsOut as error:
            found[path] = str(error)
        except (OSError, ValueError):
            found[path] = "it is not there"
        else:
            if not stat.S_ISDIR(mode) and not stat.S_ISREG(mode):
                found[path] = "it is not a regular file"
    return found


def folders_without_files(paths: Iterable[Path], files: Iterable[Path]) -> list[Path]:
    """Return the folders that were named and have none of the files."""
    places = {place for each in files for place in each.parents}
    return [path for path in paths if path.is_dir() and path not in places]


def is_left_out(path: Path, settings: Settings, real: str = "") -> bool:
    """Whether `exclude` names a file. `real`: where it really is, if that is known."""
    return matches(path, settings.exclude, settings.root, real)


@dataclass(frozen=True, slots=True)
class _Rules:
    """What decides about the entries of one folder of a work tree."""

    repository: Repository
    files: tuple[tuple[IgnoreFile, int], ...]  # the deepest first; where paths for it begin
    beside: tuple[IgnoreFile, ...]  # info/exclude, and the user's own

    def with_file(self, file: IgnoreFile | None, inside: str) -> _Rules:
        """Add the .gitignore of a folder, which is given from the root on."""
        if file is None:
            return self
        start = len(inside) + 1 if inside else 0
        return _Rules(self.repository, ((file, start), *self.files), self.beside)

    def ignore(self, inside: str, name: str, steps: Steps, *, is_folder: bool) -> bool:
        """Whether an entry is ignored, given from the root on and by its name."""
        if steps.are_spent:
            return False
        short, whole = Text(name), Text(inside)
        for file, start in self.files:
            path = Text(inside[start:]) if start else whole
            found = file.ignores(path, short, is_folder=is_folder, steps=steps)
            if found is not None:
                return found
        for file in self.beside:
            found = file.ignores(whole, short, is_folder=is_folder, steps=steps)
            if found is not None:
                return found
        return False


@dataclass(frozen=True, slots=True)
class _Place:
    """A folder that is still to be looked at: its path, and the same from the root on."""

    path: str
    inside: str  # as git compares it
    rules: _Rules


class _Tree:
    """One folder that was named."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.led_out: list[Path] = []
        self.steps = Steps()
        self.tracked = TrackedFiles(folder)
        self._users_own: IgnoreFile | None = None
        self._begun: list[_Place] = []  # where a work tree, or the part that was named, begins
        self._todo: list[_Place] = []
        self._found: dict[str, None] = {}

    def find(self) -> list[Path]:
        start = self._start()
        if start is not None:
            self._begin(start)
        while self._todo:
            self._look_at(self._todo.pop())
        for each in self._begun:
            self._add_tracked(each)
        if start is None and not self._found:
            self._walk_plainly()
        return sorted(map(Path, self._found))

    # ---- inside a work tree ----------------------------------------------------------------------

    def _start(self) -> _Place | None:
        """Return the folder with the rules above it; None if it is in no work tree, or ignored.
        Of an ignored folder git knows only what is tracked; where nothing is, and somebody asks for
        it all the same, all of it is meant."""
        here = os.path.realpath(self.folder)
        root = root_above(here)
        repository = open_repository(root) if root is not None else None
        parts = os.path.relpath(here, root).split("/") if root not in (None, here) else []
        if root is None or repository is None or MARK in parts:
            return None
        self._users_own = read_users_own()
        rules = self._rules_of(repository)
        path, inside, is_ignored = root, "", False
        for part in parts:
            rules = rules.with_file(self._ignore_file_in(path), inside)
            path, inside = os.path.join(path, part), _join(inside, _as_git(part))
            is_ignored = is_ignored or rules.ignore(
                inside, _as_git(part), self.steps, is_folder=True
            )
        start = _Place(str(self.folder), inside, rules)
        if is_ignored:
            self._begun.append(start)
            return None
        return start

    def _rules_of(self, repository: Repository) -> _Rules:
        beside = (repository.exclude, self._users_own)
        return _Rules(repository, (), tuple(each for each in beside if each is not None))

    def _ignore_file_in(self, folder: str) -> IgnoreFile | None:
        if self.steps.are_spent:
            return None
        file = read_ignore_file(os.path.join(folder, IGNORE_FILE))
        self.steps.left -= READ_STEPS_PER_PATTERN * len(file) if file is not None else 0
        return file

    def _begin(self, place: _Place) -> None:
        self._begun.append(place)
        self._todo.append(place)

    def _look_at(self, place: _Place) -> None:
        """Add the files of a folder, and note the folders in it."""
        try:
            with os.scandir(place.path) as found:
                entries = list(found)
        except (OSError, ValueError):
            return  # gone, or not ours to read
        names = {each.name for each in entries}
        index = place.rules.repository.index
        if place.inside and not index.has_below(place.inside):
            other = open_repository(place.path) if MARK in names else None
            if other is not None:
                if not is_second_work_tree(place.path):
                    self._begin(_Place(place.path, "", self._rules_of(other)))
                return
            if place.inside in index.modules:
                return  # a submodule that was never fetched
        rules = place.rules
        if IGNORE_FILE in names:
            rules = rules.with_file(self._ignore_file_in(place.path), place.inside)
        for each in entries:
            is_folder = each.is_dir(follow_symlinks=False)
            if each.name == MARK or not (is_folder or each.name.endswith(SUFFIXES)):
                continue
            name = _as_git(each.name)
            inside = _join(place.inside, name)
            if rules.ignore(inside, name, self.steps, is_folder=is_folder):
                continue
            if is_folder:
                self._todo.append(_Place(each.path, inside, rules))
            elif each.is_file(follow_symlinks=False):
                self._found[each.path] = None
            elif each.is_symlink():
                self._add_link(each.path)

    def _add_tracked(self, place: _Place) -> None:
        """Add what is tracked although it is ignored."""
        start = f"{place.inside}/" if place.inside else ""
        for name in place.rules.repository.index.files:
            if name.endswith(SUFFIXES) and name.startswith(start):
                rest = os.fsdecode(name[len(start) :].encode("latin-1"))
                path = os.path.join(place.path, rest)
                if path not in self._found:
                    self._add_one_tracked(place.path, rest, path)

    def _add_one_tracked(self, folder: str, name: str, path: str) -> None:
        try:
            if self.tracked.is_file(folder, name):
                self._found[path] = None
        except LinkLeadsOut:
            self.led_out.append(Path(path))

    # ---- elsewhere -------------------------------------------------------------------------------

    def _walk_plainly(self) -> None:
        for here, folders, names in os.walk(self.folder):
            folders[:] = [
                each
                for each in folders
                if not each.startswith(".") and each not in _SKIPPED_FOLDERS
            ]
            for name in names:
                if name.endswith(SUFFIXES):
                    self._add_link(os.path.join(here, name))

    def _add_link(self, path: str) -> None:
        """Add what may be a link, or lie behind one; no dead links, no pipes."""
        if not os.path.isfile(path):
            return
        try:
            resolve(Path(path), (self.folder,))
        except LinkLeadsOut:
            self.led_out.append(Path(path))
        else:
            self._found[path] = None


def _join(inside: str, name: str) -> str:
    return f"{inside}/{name}" if inside else name


def _as_git(name: str) -> str:
    """Return a name as git compares it: byte by byte."""
    return name if name.isascii() else os.fsencode(name).decode("latin-1")
