"""Render findings as GitHub workflow commands, shown at the lines of a pull request."""

from __future__ import annotations

from ...._reporting.untrusted_text import as_log_line, printable_lines
from ..check_result import Failure, Result, RuleFinding


def as_github(result: Result) -> str:
    lines = [*map(_one, result.found), *map(_failure, result.failures)]
    return "".join(f"{each}\n" for each in lines)


def _one(found: RuleFinding) -> str:
    where = f"cell {found.cell}: " if found.cell is not None else ""
    title = f"{found.code} {found.name} ({found.severity.value}, {found.confidence.value})"
    fields = f"file={_value(str(found.path))},line={found.line},endLine={found.end_line}"
    fields += f",col={found.span.column + 1},title={_value(title)}"
    instead = f"\ninstead: {found.instead}" if found.instead else ""
    return f"::{found.level} {fields}::{_text(where + found.words + instead)}"


def _failure(failure: Failure) -> str:
    return f"::error file={_value(str(failure.path))},title=antifreeze check::{_text(str(failure))}"


def _text(text: str) -> str:
    return printable_lines(text).replace("%", "%25").replace("\n", "%0A")


def _value(text: str) -> str:
    return _text(as_log_line(text)).replace(":", "%3A").replace(",", "%2C")
