"""Build findings from hits: nodes become places, columns of bytes become columns of characters."""

from __future__ import annotations

import ast
import bisect
import dataclasses
import functools
import itertools
from array import array

from ..rules import Rule, find_rule
from ..rules.rule import DropArgument, Edit, Fix, Hit, Replace, SetArgument, Wrap
from ..rules.rule_pages import advice
from ..source.syntax.line_splitting import split_lines
from .check_result import INSIDE, PlainEdit, PlainFix, RuleFinding, Span
from .files.source_reader import Source, Unreadable
from .settings import CANNOT_BE_READ

# Characters of a line; of longer ones it is kept at which byte each character starts.
LONG_LINE = 1_000


def build_finding(rule: Rule, hit: Hit, source: Source) -> RuleFinding:
    span = _span(hit.node, source)
    fix = _plain(hit.fix, source) if hit.fix is not None else None
    found = _at(rule, source, hit.words, span)
    return dataclasses.replace(
        found,
        confidence=hit.confidence or rule.confidence,
        header=_header(hit.node, span),
        fix=fix,
    )


def finding_at(rule: Rule, source: Source, words: str, line: int, column: int) -> RuleFinding:
    """Return a finding at a place without a node; the column counts characters."""
    return _at(rule, source, words, Span(line, column, line, column + 1))


def _at(rule: Rule, source: Source, words: str, span: Span) -> RuleFinding:
    cell, line = source.notebook.locate(span.line) if source.notebook else (None, None)
    lines = split_lines(source.text)
    return RuleFinding(
        path=source.path,
        code=rule.code,
        name=rule.name,
        severity=rule.severity,
        confidence=rule.confidence,
        words=words,
        span=span,
        header=(span.line, span.end_line),
        source=lines[span.line - 1] if span.line <= len(lines) else "",
        cell=cell,
        cell_line=line,
        instead=advice(rule),
    )


def _span(node: ast.AST, source: Source) -> Span:
    """Return where a node is. Columns of `ast` count bytes; ours count characters."""
    line: int = getattr(node, "lineno", 1)
    end_line: int = getattr(node, "end_lineno", None) or line
    lines = split_lines(source.text)

    def characters(number: int, column: int) -> int:
        text = lines[number - 1] if number <= len(lines) else ""
        return min(column, len(text)) if text.isascii() else _characters(text, column)

    start = characters(line, getattr(node, "col_offset", 0))
    end = characters(end_line, getattr(node, "end_col_offset", None) or 0)
    return Span(line, start, end_line, end)


def _characters(text: str, column: int) -> int:
    """Return how many characters of a line are in so many bytes of it."""
    if len(text) <= LONG_LINE:
        return len(text.encode()[:column].decode(errors="replace"))
    return min(bisect.bisect_left(_starts(text), column), len(text))


@functools.lru_cache(maxsize=2)  # every finding of a line asks for the same ones
def _starts(text: str) -> array[int]:
    """Return at which byte each character starts."""
    sizes = (1 if c < "\x80" else 2 if c < "\u0800" else 3 if c < "\U00010000" else 4 for c in text)
    return array("L", itertools.accumulate(sizes, initial=0))


def _header(node: ast.AST, span: Span) -> tuple[int, int]:
    """Return the lines that an allow may be on: all of an expression, but not a body. Decorators
    are a part of what they decorate."""
    first = _first_line(node, span.line)
    body = getattr(node, "body", None)
    if isinstance(body, list) and body and isinstance(node, ast.stmt | ast.ExceptHandler):
        return first, max(span.line, _first_line(body[0], span.line) - 1)
    return first, span.end_line


def _first_line(node: ast.AST, otherwise: int) -> int:
    decorators: list[ast.expr] = getattr(node, "decorator_list", [])
    lines = [getattr(node, "lineno", otherwise), *(each.lineno for each in decorators)]
    return int(min(lines))


def _plain(fix: Fix, source: Source) -> PlainFix:
    return PlainFix(fix.title, tuple(_plain_edit(each, source) for each in fix.edits))


def _plain_edit(edit: Edit, source: Source) -> PlainEdit:
    match edit:
        case SetArgument():
            return PlainEdit("set-argument", _span(edit.call, source), edit.name, edit.code)
        case DropArgument():
            return PlainEdit("drop-argument", _span(edit.call, source), edit.name)
        case Replace():
            kind = "replace-statement" if isinstance(edit.node, ast.stmt) else "replace"
            return PlainEdit(kind, _span(edit.node, source), code=edit.code)
        case Wrap():
            code = f"{edit.before}{INSIDE}{edit.after}"
            return PlainEdit("wrap", _span(edit.node, source), code=code)


def unreadable_finding(source: Source, error: Unreadable) -> RuleFinding:
    """Return the finding about a file, or a part of it, that cannot be read."""
    rule = find_rule(CANNOT_BE_READ)
    assert rule is not None
    shown = dataclasses.replace(source, text=source.original or source.text)
    return finding_at(rule, shown, str(error), error.line, error.column)
