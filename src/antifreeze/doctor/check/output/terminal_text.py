"""Print findings for people: one block a finding, colours on a terminal, a summary at the end."""

from __future__ import annotations

import sys
import textwrap
from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING, TextIO

from ...._reporting.untrusted_text import as_log_line, printable, styled_line
from ...rules.rule import Severity
from ..check_result import Result, RuleFinding

if TYPE_CHECKING:
    from rich.console import Console

MOST_FINDINGS_SHOWN = 200  # findings that are shown one by one; who has more reads JSON, or selects
LONGEST_LINE = 240  # characters of a source line, and lines that are not folded
LONGEST_SENTENCE = 2_000  # characters of one sentence; names in it are the program's, and as long
NARROWEST_WIDTH = 40  # columns
_COLOURS = {"freeze": "red", "crash": "red", "wrong data": "magenta", "slow": "yellow"}
_INDENT = "    "
_CUT = " ... "


def print_result(result: Result, file: TextIO | None = None) -> None:
    """Print the findings, and what they add up to."""
    from rich.console import Console

    out = Console(file=file or sys.stdout, highlight=False, soft_wrap=True, emoji=False)
    # Only people at a terminal need folded lines; programs read one line a sentence.
    width = max(NARROWEST_WIDTH, out.width) if out.is_terminal else LONGEST_LINE
    for each in result.found[:MOST_FINDINGS_SHOWN]:
        _show_one(out, each, width)
    if len(result.found) > MOST_FINDINGS_SHOWN:
        more = len(result.found) - MOST_FINDINGS_SHOWN
        left = f"and {more} more: --format json has all, --select fewer"
        out.print(styled_line((left, "bold")))
    for failure in result.failures[:MOST_FINDINGS_SHOWN]:
        what = "a rule failed" if failure.rule else "not looked at"
        report = " (please report it)" if failure.ours else ""
        words = f"{report}: {printable(str(failure), LONGEST_SENTENCE)}"
        out.print(styled_line((what, "bold red"), words))
    _show_folded(out, summary(result), width, "")


def _show_one(out: Console, found: RuleFinding, width: int) -> None:
    colour = _COLOURS[found.severity.value]
    sure = f"({found.severity.value}, {found.confidence.value})"
    place = printable(found.place, LONGEST_SENTENCE)
    named = ((found.code, f"bold {colour}"), f" {found.name} ", (sure, colour))
    # What does not fit goes to a line of its own, not where the terminal happens to break.
    if len(f"{place}: {found.code} {found.name} {sure}") <= width:
        out.print(styled_line((place, "bold"), ": ", *named))
    else:
        out.print(styled_line((place, "bold"), ":"))
        out.print(styled_line(_INDENT, *named))
    _show_folded(out, _sentence(found.words), width)
    _show_source(out, found, width, colour)
    if found.instead:
        _show_folded(out, f"instead: {found.instead}", width)
    if found.fix is not None and found.can_be_fixed:
        out.print(styled_line(_INDENT, (f"--fix can {found.fix.title}", "dim")))


def _show_folded(out: Console, words: str, width: int, indent: str = _INDENT) -> None:
    shown = printable(_cut(words, LONGEST_SENTENCE))
    for line in textwrap.wrap(
        shown, width - len(indent), break_long_words=False, break_on_hyphens=False
    ):
        out.print(styled_line(indent, line))


def _cut(text: str, most: int) -> str:
    return text if len(text) <= most else f"{text[:most]}{_CUT}"


def _show_source(out: Console, found: RuleFinding, width: int, colour: str) -> None:
    """Show the line, with a caret under each character that is meant; tabs are four columns, and
    what cannot be printed is as long as it is written."""
    number = str(found.line)
    line = found.source.rstrip()
    if not line.strip():
        return
    shift = len(line) - len(line.lstrip())
    same = found.span.end_line == found.span.line
    start = min(max(found.span.column, shift), len(line))
    end = max(min(found.span.end_column, len(line)) if same else len(line), start + 1)
    room = width - len(_INDENT) - len(number) - 3
    before = _source_text(line[max(shift, start - room) : start])
    meant = _source_text(line[start : min(end, start + room)])
    if len(before) > room - len(_CUT) - 8:  # it would be out of sight: show the end of the line
        before = _CUT
    text = before + meant + _source_text(line[end : end + room])
    if len(text) > room:
        text = text[: room - len(_CUT)] + _CUT
    first = _place_in(text, len(before))
    last = max(first + 1, _place_in(text, min(len(before) + len(meant), len(text))))
    out.print(styled_line(_INDENT, (f"{number} |", "dim"), f" {text}"))
    blank = " " * first
    carets = "^" * (last - first)
    out.print(
        styled_line(_INDENT, " " * len(number), " ", ("|", "dim"), f" {blank}", (carets, colour))
    )


def _source_text(text: str) -> str:
    return printable(text.expandtabs(4))


def _place_in(text: str, place: int) -> int:
    """Return where a place of a line is when it is shown: signs are put into what a service would
    take for a command."""
    shown = as_log_line(f"|{text}")[1:]
    at = 0
    for each in text[:place]:
        at += 1 if shown[at] == each else 2
    return at + (place < len(text) and shown[at] != text[place])


def summary(result: Result) -> str:
    """Return in one line what was found, and what was not looked at."""
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
