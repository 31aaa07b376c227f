"""Findings as workflow commands: GitHub shows them at the lines of a pull request."""

from __future__ import annotations

from .found import Found, Result

_LEVELS = {"freeze": "error", "crash": "error", "wrong data": "error", "slow": "warning"}


def as_github(result: Result) -> str:
    return "".join(f"{_one(each)}\n" for each in result.found)


def _one(found: Found) -> str:
    line = found.cell_line or found.span.line
    last = line + found.span.end_line - found.span.line
    where = f"cell {found.cell}: " if found.cell is not None else ""
    title = f"{found.code} {found.name} ({found.severity.value}, {found.confidence.value})"
    fields = f"file={_value(str(found.path))},line={line},endLine={last}"
    fields += f",col={found.span.column + 1},title={_value(title)}"
    return f"::{_LEVELS[found.severity.value]} {fields}::{_text(where + found.words)}"


def _text(text: str) -> str:
    return text.replace("%", "%25").replace("\r", "%0D").replace("\n", "%0A")


def _value(text: str) -> str:
    return _text(text).replace(":", "%3A").replace(",", "%2C")
