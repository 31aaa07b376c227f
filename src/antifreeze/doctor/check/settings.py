"""Settings of a check: which rules run on which files, and which findings are shown."""

from __future__ import annotations

import functools
import os
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from ..findings import Confidence
from ..rules import Rule, all_rules
from .files.globs import Glob, Text, settings_glob

# Of `exclude` and `per-path` together: some milliseconds for a file; long lists have 5,000.
MOST_PATTERN_CHARACTERS = 20_000
CANNOT_BE_READ = "AF001"


@dataclass(frozen=True, slots=True)
class ForPaths:
    """Settings for the files of some patterns."""

    patterns: tuple[str, ...]
    ignore: tuple[str, ...] = ()
    select: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        _as_codes(self, "ignore", "select")


@dataclass(frozen=True, slots=True)
class Settings:
    """Everything that decides what is reported. Rules may be given by name, by code, by its
    beginning (AF3 is all of AF3xx) or ALL; here they become codes. Raise ValueError for a word
    that means no rule."""

    root: Path = Path()  # what patterns are relative to
    select: tuple[str, ...] = ()  # instead of the default set; empty: the default set
    extend_select: tuple[str, ...] = ()
    ignore: tuple[str, ...] = ()
    exclude: tuple[str, ...] = ()
    confidence: Confidence = Confidence.LIKELY  # the least sure that is shown
    strict: bool = False  # also allows that silence nothing
    python: tuple[int, int] | None = None  # the oldest that the program runs on
    for_paths: tuple[ForPaths, ...] = ()
    jobs: int = 0  # processes; 0: as many as there are cores
    force_exclude: bool = False  # also files that are named, as pre-commit names them
    source: Path | None = None  # the file they are of; None: the defaults
    named: tuple[Path, ...] = ()  # on the command line: where links may lead depends on it

    def __post_init__(self) -> None:
        _as_codes(self, "select", "extend_select", "ignore")
        patterns = (*self.exclude, *(one for each in self.for_paths for one in each.patterns))
        if sum(len(each) + 1 for each in patterns) > MOST_PATTERN_CHARACTERS:
            most = f"{MOST_PATTERN_CHARACTERS:,} characters"
            raise ValueError(f"the patterns of exclude and per-path have more than {most}")

    def rules_for(self, path: Path) -> tuple[Rule, ...]:
        """Return the rules that look at a file."""
        ignore, more = [*self.ignore], [*self.extend_select]
        for each in self.for_paths:
            if matches(path, each.patterns, self.root):
                ignore += each.ignore
                more += each.select
        return tuple(
            rule
            for rule in all_rules()
            if (
                rule.code in more
                or rule.code == CANNOT_BE_READ  # nothing else is to be had of such a file
                or (rule.code in self.select if self.select else not rule.opinion)
            )
            and rule.code not in ignore
        )

    def shows(self, confidence: Confidence) -> bool:
        return confidence.rank <= self.confidence.rank


def codes_of(word: str) -> tuple[str, ...]:
    """Return the codes of the rules that a word means, in any case. Raise ValueError for none."""
    wanted = word.strip().upper()
    found = tuple(
        rule.code
        for rule in all_rules()
        if wanted in ("ALL", rule.name.upper())
        or (wanted.startswith("AF") and rule.code.startswith(wanted))
    )
    if not found:
        raise ValueError(f"there is no rule {word!r}")
    return found


def _as_codes(settings: ForPaths | Settings, *names: str) -> None:
    for name in names:
        codes = [code for word in getattr(settings, name) for code in codes_of(word)]
        object.__setattr__(settings, name, tuple(dict.fromkeys(codes)))


def matches(path: Path, patterns: Iterable[str], root: Path, real: str = "") -> bool:
    """Whether a path, or a folder it is in, fits a pattern: `tests`, `*.ipynb`, `a/**/b.py`.
    `real`: where it really is, if that is known."""
    wanted = tuple(patterns)
    if not wanted:
        return False
    name = _seen_from(_real(os.path.abspath(root)), real or os.path.realpath(path), path)
    while name and name != ".":
        if _fits(name, wanted):
            return True
        name = name.rpartition("/")[0]
    return False


def _seen_from(root: str, real: str, path: Path) -> str:
    """Return a path as patterns see it: by its real place, or its own, from the root on."""
    for each in (real, os.path.abspath(path)):
        if each.startswith(f"{root}/"):
            return each[len(root) + 1 :]
    return str(path)


@functools.lru_cache(maxsize=16)
def _real(root: str) -> str:
    return os.path.realpath(root).rstrip("/")


@functools.lru_cache(maxsize=4096)  # folders are asked about for each of their files
def _fits(name: str, patterns: tuple[str, ...]) -> bool:
    """Whether one of the patterns fits a path, or, if it has no slash, the last part of it."""
    whole, last = Text(name), Text(name.rpartition("/")[2])
    return any(
        glob.matches(whole) or (is_name and glob.matches(last))
        for glob, is_name in map(_glob, patterns)
    )


@functools.lru_cache(maxsize=4096)
def _glob(pattern: str) -> tuple[Glob, bool]:
    """Return a pattern that was read, and whether it is one of a name."""
    return settings_glob(pattern.removeprefix("./").rstrip("/")), "/" not in pattern.rstrip("/")
