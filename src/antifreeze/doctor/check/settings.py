"""What is checked and shown: `[tool.antifreeze.check]`, and what the command line adds."""

from __future__ import annotations

import fnmatch
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from ..findings import Confidence
from ..rules import Rule, all_rules, find_rule


@dataclass(frozen=True, slots=True)
class ForPaths:
    """Settings for the files of some patterns."""

    patterns: tuple[str, ...]
    ignore: tuple[str, ...] = ()
    select: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Settings:
    """Everything that decides what is reported. Codes may be cut short: AF3 is all of AF3xx."""

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
                named(rule, more) or (named(rule, self.select) if self.select else not rule.opinion)
            )
            and not named(rule, ignore)
        )

    def shows(self, confidence: Confidence) -> bool:
        return confidence.rank <= self.confidence.rank


def named(rule: Rule, words: Iterable[str]) -> bool:
    """Say whether a rule is meant by one of these words: a name, a code, its beginning, or ALL."""
    for word in words:
        if word == rule.name or word.upper() == "ALL":
            return True
        if word.upper().startswith("AF") and rule.code.startswith(word.upper()):
            return True
    return False


def check_words(words: Iterable[str]) -> None:
    """Raise ValueError for a word that means no rule."""
    for word in words:
        if find_rule(word) is None and not any(named(rule, [word]) for rule in all_rules()):
            raise ValueError(f"there is no rule {word!r}")


def matches(path: Path, patterns: Iterable[str], root: Path) -> bool:
    """Say whether a path, or a folder it is in, fits a pattern: `tests`, `*.ipynb`, `a/**/b.py`."""
    try:
        inside = path.resolve().relative_to(root.resolve())
    except ValueError:
        inside = path
    names = [str(inside), *(str(each) for each in inside.parents if str(each) != ".")]
    for pattern in patterns:
        pattern = pattern.removeprefix("./").rstrip("/")
        if any(fnmatch.fnmatch(name, pattern) for name in names):
            return True
        if "/" not in pattern and any(fnmatch.fnmatch(part, pattern) for part in inside.parts):
            return True
    return False
