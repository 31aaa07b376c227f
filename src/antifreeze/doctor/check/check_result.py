"""Findings and failures of a check, as plain data: processes send it, outputs print it."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from ..findings import Confidence
from ..rules.rule import Severity

LEVELS = {  # what services that show annotations know
    Severity.FREEZE: "error",
    Severity.CRASH: "error",
    Severity.WRONG_DATA: "error",
    Severity.SLOW: "warning",
}
INSIDE = "__inside__"  # in the code of a `wrap`: where the expression itself goes


@dataclass(frozen=True, slots=True)
class Span:
    """From where to where: lines from 1, columns (characters) from 0, the end not included."""

    line: int
    column: int
    end_line: int
    end_column: int


@dataclass(frozen=True, slots=True)
class PlainEdit:
    """One edit of a fix, by places instead of nodes."""

    kind: str  # set-argument, drop-argument, replace, replace-statement, wrap
    span: Span
    name: str = ""
    code: str = ""


@dataclass(frozen=True, slots=True)
class PlainFix:
    title: str
    edits: tuple[PlainEdit, ...]


@dataclass(frozen=True, slots=True)
class RuleFinding:
    """One finding."""

    path: Path
    code: str
    name: str
    severity: Severity
    confidence: Confidence
    words: str
    span: Span  # in the text that was read; of a notebook: of all its cells as one text
    header: tuple[int, int]  # first and last line on which an allow counts
    source: str = ""  # the line
    cell: int | None = None  # of a notebook, from 1
    cell_line: int | None = None  # the line in that cell, from 1
    fix: PlainFix | None = None
    instead: str = ""  # what to do, in a sentence

    @property
    def order(self) -> tuple[str, int, int, str]:
        return str(self.path), self.span.line, self.span.column, self.code

    @property
    def line(self) -> int:
        """Return the line, as people count it: of a notebook, in its cell."""
        return self.cell_line or self.span.line

    @property
    def end_line(self) -> int:
        return self.line + self.span.end_line - self.span.line

    @property
    def place(self) -> str:
        """Return file, line and column as editors take them."""
        where = f"cell {self.cell} line {self.line}" if self.cell is not None else f"{self.line}"
        return f"{self.path}:{where}:{self.span.column + 1}"

    @property
    def level(self) -> str:
        return LEVELS[self.severity]

    @property
    def can_be_fixed(self) -> bool:
        """Whether `--fix` would change it: cells of a notebook are left alone, their outputs
        belong to their source."""
        return self.fix is not None and self.cell is None


@dataclass(frozen=True, slots=True)
class Failure:
    """A file that was not looked at, or not by one of the rules: not the program's fault."""

    path: Path
    words: str
    rule: str = ""  # the code of the rule that failed; '': nothing looked at the file
    ours: bool = True  # a bug of ours; False: a file too large for us, or too new

    def __str__(self) -> str:
        return f"{self.rule} {self.path}: {self.words}".lstrip()


@dataclass(frozen=True, slots=True)
class Result:
    """What came of checking all files."""

    found: tuple[RuleFinding, ...] = ()
    files: int = 0
    lines: int = 0
    failures: tuple[Failure, ...] = ()
    unread: int = 0  # files that are no Python: also where AF001, which says so, is ignored
    settings: Path | None = None  # the file they are of

    @property
    def not_looked_at(self) -> int:
        """Return the number of files that no rule has seen."""
        return self.unread + len({each.path for each in self.failures if not each.rule})

    @property
    def rules_failed(self) -> int:
        return len({each.rule for each in self.failures if each.rule})
