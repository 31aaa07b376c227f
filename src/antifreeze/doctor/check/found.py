"""What is found in files, as plain data: fit to be sent between processes and to be printed."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path

from ..findings import Confidence
from ..rules.base import Severity

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

    kind: str  # set-argument, drop-argument, replace, replace-statement, wrap, add-import
    span: Span
    name: str = ""
    code: str = ""


@dataclass(frozen=True, slots=True)
class PlainFix:
    title: str
    edits: tuple[PlainEdit, ...]


@dataclass(frozen=True, slots=True)
class Found:
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

    @property
    def order(self) -> tuple[str, int, int, str]:
        return str(self.path), self.span.line, self.span.column, self.code

    @property
    def place(self) -> str:
        """Give file, line and column as editors take them."""
        if self.cell is not None:
            where = f"cell {self.cell} line {self.cell_line}"
            return f"{self.path}:{where}:{self.span.column + 1}"
        return f"{self.path}:{self.span.line}:{self.span.column + 1}"


@dataclass(frozen=True, slots=True)
class Result:
    """What came of checking all files."""

    found: tuple[Found, ...] = ()
    files: int = 0
    lines: int = 0
    failures: tuple[str, ...] = field(default=())  # ours: a rule that raised
