"""What is shown to people: one block a finding, colours on a terminal, a sum at the end."""

from __future__ import annotations

import sys
import textwrap
from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING, TextIO

from ..._reporting.untrusted_text import printable
from ..rules.base import Severity
from .found import Found, Result

if TYPE_CHECKING:
    from rich.console import Console

MOST = 200  # findings that are shown one by one; who has more reads JSON, or selects
LONGEST = 240  # characters of a source line, and lines that are not folded
NARROWEST = 40  # columns
_COLOURS = {"freeze": "red", "crash": "red", "wrong data": "magenta", "slow": "yellow"}
_INDENT = "    "
_CUT = " ... "


def show(result: Result, file: TextIO | None = None) -> None:
    """Print the findings, and what they add up to."""
    from rich.console import Console

    out = Console(file=file or sys.stdout, highlight=False, soft_wrap=True, emoji=False)
    # Only people at a terminal need folded lines; programs read one line a sentence.
    width = max(NARROWEST, out.width) if out.is_terminal else LONGEST
    for each in result.found[:MOST]:
        _show_one(out, each, width)
    if len(result.found) > MOST:
        left = f"and {len(result.found) - MOST} more: --format json has all, --select fewer"
        out.print(f"[bold]{left}[/]")
    for failure in result.failures[:MOST]:
        what = "a rule failed" if failure.rule else "not looked at"
        report = " (please report it)" if failure.ours else ""
        out.print(f"[bold red]{what}[/]{report}: {_safe(str(failure))}")
    for line in textwrap.wrap(summary(result), width, break_on_hyphens=False):
        out.print(_safe(line))


def _show_one(out: Console, found: Found, width: int) -> None:
    colour = _COLOURS[found.severity.value]
    sure = f"({found.severity.value}, {found.confidence.value})"
    plain = f"{found.place}: {found.code} {found.name} {sure}"
    # What does not fit goes to a line of its own, not where the terminal happens to break.
    between = " " if len(plain) <= width else f"\n{_INDENT}"
    out.print(
        f"[bold]{_safe(found.place)}[/]:{between}[bold {colour}]{found.code}[/] {found.name}"
        f" [{colour}]{sure}[/]"
    )
    words = textwrap.wrap(
        _sentence(found.words), width - len(_INDENT), break_long_words=False, break_on_hyphens=False
    )
    for line in words:
        out.print(f"{_INDENT}{_safe(line)}")
    _show_source(out, found, width, colour)
    instead = textwrap.wrap(
        f"instead: {found.instead}",
        width - len(_INDENT),
        break_long_words=False,
        break_on_hyphens=False,
    )
    for line in instead if found.instead else ():
        out.print(f"{_INDENT}{_safe(line)}")
    if found.fix is not None and found.can_be_fixed:
        out.print(f"{_INDENT}[dim]--fix can {_safe(found.fix.title)}[/]")


def _show_source(out: Console, found: Found, width: int, colour: str) -> None:
    """Show the line, with a caret under each character that is meant; tabs are four columns."""
    number = str(found.line)
    line = found.source.rstrip()
    if not line.strip():
        return
    shift = len(line) - len(line.lstrip())
    same = found.span.end_line == found.span.line
    start = min(max(found.span.column, shift), len(line))
    end = min(found.span.end_column, len(line)) if same else len(line)
    before = line[shift:start].expandtabs(4)
    meant = line[start : max(end, start + 1)].expandtabs(4)
    text = line[shift:].expandtabs(4)
    room = width - len(_INDENT) - len(number) - 3
    if len(before) > room - len(_CUT) - 8:  # it would be out of sight: show the end of the line
        text, before = _CUT + text[len(before) :], _CUT
    if len(text) > room:
        text = text[: room - len(_CUT)] + _CUT
    out.print(f"{_INDENT}[dim]{number} |[/] {_safe(text)}")
    carets = "^" * max(1, min(len(meant), len(text) - len(before)))
    blank = " " * len(before)
    out.print(f"{_INDENT}{' ' * len(number)} [dim]|[/] {blank}[{colour}]{carets}[/]")


def summary(result: Result) -> str:
    """Say in one line what was found, and what was not looked at."""
    files = _count(result.files, "file")
    unseen = []
    if result.not_looked_at:
        unseen.append(f"{_count(result.not_looked_at, 'file')} not looked at")
    if result.rules_failed:
        unseen.append(f"{_count(result.rules_failed, 'rule')} of ours failed")
    but = "".join(f"; {each}" for each in unseen)
    if not result.found:
        lines = f", {_count(result.lines, 'line')}" if result.lines else ""
        return f"Nothing found in {files}{lines}{_of_settings(result)}{but}."
    counted = Counter(each.severity.value for each in result.found)
    kinds = [each.value for each in Severity]
    parts = ", ".join(f"{counted[kind]:,} {kind}" for kind in kinds if counted[kind])
    fixable = sum(each.can_be_fixed for each in result.found)
    more = f"; --fix mends {fixable}" if fixable else ""
    codes = Counter(each.code for each in result.found)
    why = f"antifreeze explain {codes.most_common(1)[0][0]}"
    where = f"{files}{_of_settings(result)}"
    return f"{len(result.found):,} found in {where}: {parts}{more}{but}. Why: {why}"


def _of_settings(result: Result) -> str:
    if result.settings is None:
        return ""
    path, here = result.settings, Path.cwd()
    return (
        f" (settings: {printable(str(path.relative_to(here) if here in path.parents else path))})"
    )


def _count(number: int, what: str) -> str:
    return f"{number:,} {what}{'s' * (number != 1)}"


def _sentence(words: str) -> str:
    """Make words a sentence: a capital, unless they begin with a name, and a full stop."""
    text = words[:1].upper() + words[1:]
    return text if text.endswith((".", "?", "!")) else text + "."


def _safe(text: str) -> str:
    from rich.markup import escape

    return escape(text)
