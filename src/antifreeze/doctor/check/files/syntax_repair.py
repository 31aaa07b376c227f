"""Repair a source of which only a part cannot be parsed, so that the rest is checked.

1. A block without a body (`for x in y:` and then only comments) is read as if it had `pass`.
2. A cell that cannot be read is left out; the others are read.
3. Each is reported (AF001) all the same. Lines and columns stay what they were.
"""

from __future__ import annotations

import ast
import dataclasses
import io
import re
import tokenize

from ...source.syntax.line_splitting import LINE_END, split_lines
from ...source.syntax.safe_compile import compile_quietly
from .source_reader import PYTHON, Source, Unreadable

MOST_MISSING_BODIES = 20  # bodies that are missing, in one file: more is no Python
MOST_REPAIR_CHARACTERS = 4_000_000  # read again for them: each is seen only after the one before it
# Characters of a line in which a comment is looked for: `tokenize` may take the square of them.
LONGEST_HEADER_LINE = 10_000
_NO_BODY = re.compile(r"expected an indented block after .* on line (\d+)")


def repaired(source: Source) -> Source:
    """Return a source that can be parsed, with its faults. Raise Unreadable if it cannot be."""
    if source.notebook is None:
        text, faults = _with_bodies(source.text)
        return dataclasses.replace(source, text=text, faults=faults, original=source.text)
    lines = source.text.split("\n")
    every: list[Unreadable] = []
    whole = source.is_whole
    for start, end in source.notebook.extents():
        cell = "\n".join(lines[start:end])
        try:
            text, found = _with_bodies(cell, "this cell")
        except Unreadable as error:
            text, found, whole = "\n" * (end - start - 1), (error,), False
        lines[start:end] = text.split("\n")
        every += (
            Unreadable(str(each), each.line + start, each.column, is_syntax=each.is_syntax)
            for each in found
        )
    return dataclasses.replace(
        source,
        text="\n".join(lines),
        faults=tuple(every),
        original=source.text,
        is_whole=whole,
    )


def _with_bodies(text: str, what: str = "this file") -> tuple[str, tuple[Unreadable, ...]]:
    """Return a text with `pass` where a body is missing. Raise Unreadable for all else."""
    faults: list[Unreadable] = []
    most = min(MOST_MISSING_BODIES, MOST_REPAIR_CHARACTERS // (len(text) + 1))
    while True:
        try:
            _compile(text)
            return text, tuple(faults)
        except SyntaxError as error:
            match = _NO_BODY.match(error.msg)
            new = _with_pass(text, int(match[1]), error.lineno or 1) if match is not None else None
            if new is None or len(faults) >= most:
                words = f"{what} cannot be read as {PYTHON}: {error.msg}"
                column = max(0, (error.offset or 1) - 1)
                raise Unreadable(words, error.lineno or 1, column, is_syntax=True) from None
            assert match is not None
            line = int(match[1])
            header = split_lines(text)[line - 1]
            column = len(header) - len(header.lstrip())
            words = "the block has no body, only comments at most: a SyntaxError"
            faults.append(Unreadable(words, line, column))
            text = new
        except (ValueError, RecursionError, MemoryError) as error:
            words = f"{what} cannot be read as {PYTHON}: {str(error) or type(error).__name__}"
            raise Unreadable(words) from None


def _compile(text: str) -> None:
    compile_quietly(text, ast.PyCF_ONLY_AST | ast.PyCF_ALLOW_TOP_LEVEL_AWAIT)


def _with_pass(text: str, first: int, until: int) -> str | None:
    """Put `pass` behind the colon of a statement that begins at a line."""
    lines = list(split_lines(text))
    ends = [*LINE_END.findall(text), ""]
    for place in range(min(until, len(lines)) - 1, first - 2, -1):
        bare = lines[place].strip()
        if not bare or bare.startswith("#"):
            continue
        found = re.match(r"(.*:)(\s*(?:#.*)?)$", _without_comment(lines[place]))
        if found is None:
            if place + 1 == until:
                continue  # the statement that came instead of the body
            return None
        code = found[1]
        lines[place] = f"{code} pass{lines[place][len(code) :]}"
        return "".join(line + end for line, end in zip(lines, ends, strict=True))
    return None


def _without_comment(line: str) -> str:
    """Cut a comment off, as well as one line by itself tells."""
    if len(line) > LONGEST_HEADER_LINE:
        return line
    try:
        for token in tokenize.generate_tokens(io.StringIO(line).readline):
            if token.type == tokenize.COMMENT:
                return line[: token.start[1]]
    except (tokenize.TokenError, IndentationError, SyntaxError):
        pass
    return line
