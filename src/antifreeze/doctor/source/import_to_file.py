"""Resolve imports to files, and name files as imports see them.

1. A file of a package with `__init__.py` has the dotted name that all import it by: `pkg.data.csv`.
2. Any other file can be imported by several names, depending on where Python is started. It is
   called by its place, which no import can be mistaken for: `/repo/pkg/ds`, and a class of it
   `/repo/pkg/ds.Bin`.
3. An import is looked for as Python would, as far as files tell: beside the importing file
   (`sys.path[0]` if it is run), then in each folder above it and in their `src`. A folder is a
   package with or without `__init__.py`. The first place that has the name has it for good.
4. Folders with `__init__.py` are no such places: inside a package, `import x` is not its neighbour,
   unless programs are run there; then they come last.
5. What is left can be a package anywhere in what is checked: the nearest, never one of two that
   are equally near.
"""

from __future__ import annotations

import functools
import os
import sys
from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from .file_summary import Summary

_DOT = "\N{MIDDLE DOT}"  # for a dot in the name of a folder: dots part names
_MARKS = (".git", "pyproject.toml", "setup.py", "setup.cfg")  # of a project's own folder
# Loaded before any program starts: a file of that name beside it is never imported.
_EARLY = frozenset({"abc", "codecs", "encodings", "io", "os", "site", "stat"})
_NEVER_LOCAL = _EARLY | frozenset(sys.builtin_module_names)


def module_name(path: Path) -> tuple[str, bool]:
    """Return the name of a file, and whether it is a package."""
    is_package = path.name == "__init__.py"
    parts = [] if is_package else [path.stem]
    folder = path.resolve().parent
    while _is_regular(folder):
        parts.insert(0, folder.name)
        folder = folder.parent
    inside = len(parts) > (0 if is_package else 1)
    return ".".join(parts) if inside and path.suffix == ".py" else _anchor(_place(path)), is_package


def _is_regular(folder: Path) -> bool:
    return (folder / "__init__.py").exists()


def relative_to(name: str, path: Path, is_package: bool, level: int) -> str:
    """Return what `from ..x import y` (`level`: how many dots) of a file is relative to."""
    ups = level if not is_package else level - 1
    if not name.startswith("/"):
        parts = name.split(".")
        if ups < len(parts):
            return ".".join(parts[: len(parts) - ups])
    folder = _place(path)
    for _ in range(ups):
        folder = os.path.dirname(folder)
    return _anchor(folder)


def _place(path: Path) -> str:
    """Return where a file is, as imports see it: without its suffix; a package is its folder."""
    whole = os.path.abspath(path)
    if path.name == "__init__.py":
        return os.path.dirname(whole)
    return whole.removesuffix(".py")


def _anchor(place: str) -> str:
    return place.replace(".", _DOT)


def last_part(name: str) -> str:
    """Return the last part of a name of either kind."""
    return name[max(name.rfind("."), name.rfind("/")) + 1 :]


class ImportResolver:
    """All files by name and by place."""

    def __init__(self, summaries: Iterable[Summary], root: Path | None = None) -> None:
        self._root = root
        self._by_place: dict[str, Summary] = {}
        self._by_anchor: dict[str, Summary] = {}
        self._by_name: dict[str, list[Summary]] = {}
        self._folders: set[str] = set()  # all that have files, at any depth
        self._regular: set[str] = set()  # with an __init__.py
        self._run_in: set[str] = set()  # with a file that is a program
        self._words: set[str] = set()  # what a name must begin with to be one of ours
        self._starts: dict[tuple[str, str], tuple[str, ...]] = {}
        self._places: dict[str, tuple[list[str], list[str]]] = {}
        for each in summaries:
            self._add(each)
        self._words |= {os.path.basename(each) for each in self._folders}

    def _add(self, each: Summary) -> None:
        place = _place(each.path)
        folder = place if each.is_package else os.path.dirname(place)
        self._by_anchor.setdefault(_anchor(place), each)
        if not each.name.startswith("/"):
            self._by_name.setdefault(each.name, []).append(each)
            self._words.add(each.name.partition(".")[0])
        if not each.is_notebook:
            if each.is_package or place not in self._by_place:  # `ds/` comes before `ds.py`
                self._by_place[place] = each
            self._words.add(os.path.basename(place))
        if each.is_package:
            self._regular.add(folder)
        if each.is_script:
            self._run_in.add(folder)
        while folder not in self._folders:
            self._folders.add(folder)
            folder = os.path.dirname(folder)

    @functools.cached_property
    def _highest(self) -> str:
        """Return the folder above which nothing is looked for: the project's own that all files are
        in, the one that was checked, or the one that holds them all."""
        folders = {os.path.dirname(each) for each in self._by_place} or {os.getcwd()}
        top = os.path.commonpath(folders)
        root = os.path.abspath(self._root) if self._root is not None else top
        if os.path.commonpath([root, top]) == root:
            top = root
        return _project_above(top) or top

    def find(self, name: str, folder: str) -> Summary | None:
        """Return the file that a name means to the files of a folder."""
        if name.startswith("/"):
            return self._by_anchor.get(name.replace(".", "/"))
        first = name.partition(".")[0]
        if first not in self._words or first in _NEVER_LOCAL:
            return None
        tail = name.replace(".", "/")
        for place in self._starts_of(first, folder):
            found = self._by_place.get(f"{place}/{tail}")
            if found is not None or f"{place}/{first}" in self._by_place:
                return found  # None: the name begins here, and there is no such thing in it
        if first in sys.stdlib_module_names:
            return None
        return _nearest(self._by_name.get(name, ()), folder)

    def _starts_of(self, first: str, folder: str) -> tuple[str, ...]:
        """Return the places at which a name begins, in the order in which they are tried."""
        key = first, folder
        if key not in self._starts:
            self._starts[key] = tuple(self._all_starts(first, folder))
        return self._starts[key]

    def _all_starts(self, first: str, folder: str) -> Iterable[str]:
        early, late = self._places_of(folder)
        if first in sys.stdlib_module_names:
            # Python's own comes after `sys.path[0]` only, and before folders without __init__.py.
            # Whoever is inside a package of that name has it already.
            package = folder
            while os.path.dirname(package) in self._regular:
                package = os.path.dirname(package)
            inside = package in self._regular and os.path.basename(package) == first
            place = os.path.dirname(package) if inside else folder
            return [place] if place in early and f"{place}/{first}" in self._by_place else []
        every = (f"{place}/{first}" for place in (*early, *late))
        return [
            os.path.dirname(each)
            for each in every
            if each in self._by_place or each in self._folders
        ]

    def _places_of(self, folder: str) -> tuple[list[str], list[str]]:
        if folder not in self._places:
            self._places[folder] = self._all_places(folder)
        return self._places[folder]

    def _all_places(self, folder: str) -> tuple[list[str], list[str]]:
        early: list[str] = []
        late: list[str] = []
        here, above = folder, ""
        while here != above:
            for each in (here, f"{here}/src"):
                if each not in self._regular:
                    early += [each] if each not in early else []
                elif each in self._run_in and each == here:
                    late.append(each)
            if here == self._highest:
                break
            above, here = here, os.path.dirname(here)
        return early, late


def _project_above(folder: str) -> str:
    """Return the nearest folder with marks of a project, this one or one above; '' if none has."""
    above = ""
    while folder != above:
        if any(os.path.exists(f"{folder}/{mark}") for mark in _MARKS):
            return folder
        above, folder = folder, os.path.dirname(folder)
    return ""


def _nearest(candidates: Iterable[Summary], folder: str) -> Summary | None:
    """Return the one that shares most folders; None if there are several of them."""
    best: Summary | None = None
    most = -1
    for each in candidates:
        shared = len(os.path.commonpath([os.path.abspath(each.path), folder]).split("/"))
        if shared == most:
            best = None
        elif shared > most:
            best, most = each, shared
    return best
