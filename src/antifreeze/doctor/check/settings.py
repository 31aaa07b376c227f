"""What is checked and shown: `[tool.antifreeze.check]`, and what the command line adds."""

from __future__ import annotations

import fnmatch
import functools
import re
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from ..findings import Confidence
from ..rules import Rule, all_rules

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
    beginning (AF3 is all of AF3xx) or ALL; here they become codes. Raises ValueError for a word
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

    def __post_init__(self) -> None:
        _as_codes(self, "select", "extend_select", "ignore")

    def rules_for(self, path: Path) -> tuple[Rule, ...]:
        """Give the rules that look at a file."""
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
    """Give the codes of the rules that a word means, in any case. Raises ValueError for none."""
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


def matches(path: Path, patterns: Iterable[str], root: Path) -> bool:
    """Say whether a path, or a folder it is in, fits a pattern: `tests`, `*.ipynb`, `a/**/b.py`."""
    try:
        inside = path.resolve().relative_to(root.resolve())
    except ValueError:
        inside = path
    names = [str(inside), *(str(each) for each in inside.parents if str(each) != ".")]
    for pattern in patterns:
        expression = _expression(pattern.removeprefix("./").rstrip("/"))
        if any(expression.fullmatch(name) for name in names):
            return True
        if "/" not in pattern.rstrip("/") and any(map(expression.fullmatch, inside.parts)):
            return True
    return False


@functools.cache
def _expression(pattern: str) -> re.Pattern[str]:
    """Translate a pattern. `**/` also means no folder at all, which fnmatch does not know.

    What stands before a `**/` is matched as early as it can be, and never again: a pattern with
    many of them must not take hours. Nothing is missed by it: what is left begins at a folder.
    """
    *before, last = re.sub(r"(\*\*/)+", "**/", pattern).split("**/")
    folders = "(?:.*?/)??"
    parts = [f"(?>{folders * bool(at)}{_translated(each)})" for at, each in enumerate(before)]
    end = re.sub(r"\\[zZ]$", "", fnmatch.translate(last))
    return re.compile("".join(parts) + "(?:.*/)?" * bool(before) + end, re.DOTALL)


def _translated(part: str) -> str:
    """Translate the beginning of a pattern, each `*` of it as few characters as will do."""
    return re.sub(r"\.\*\)\\[zZ]$", ")", fnmatch.translate(f"{part}*"))
