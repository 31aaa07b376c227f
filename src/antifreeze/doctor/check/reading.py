"""One file's text as Python: decoded, by cell, and mended where only a part of it is broken.

1. A block without a body (`for x in y:` and then only comments) is read as if it had `pass`.
2. A cell that cannot be read is left out; the others are read.
3. Each is reported (AF001) all the same. Lines and columns stay what they were.
"""

from __future__ import annotations

import ast
import dataclasses
import io
import os
import re
import sys
import tokenize
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from ..._linux.regular_files import NotRegular, open_real
from ..source.lines import LINE_END, split_lines
from ..source.notebooks import Notebook, read_notebook
from ..source.parsing import TooManyFields, compile_quietly, refuse_huge_strings
from .decoding import BOM, decode
from .links import LeadsOut, resolve

LARGEST = 4_000_000  # bytes, or characters; larger files are generated, and take many seconds each
LARGEST_NOTEBOOK = 64_000_000  # bytes: pictures are inside; what counts as code is at most LARGEST
MENDED = 20  # bodies that are missing, in one file: more is no Python
MENDED_CHARACTERS = 4_000_000  # read again for them: each is seen only after the one before it
# Characters of a line in which a comment is looked for: `tokenize` may take the square of them.
LONGEST_HEADER = 10_000
_NO_BODY = re.compile(r"expected an indented block after .* on line (\d+)")


# A file may be in the syntax of a newer one than that which runs us.
PYTHON = "Python {}.{}".format(*sys.version_info)


class Unreadable(ValueError):
    """A file, or a part of one, that cannot be read; with the place if there is one."""

    def __init__(
        self, words: str, line: int = 1, column: int = 0, *, is_syntax: bool = False
    ) -> None:
        super().__init__(words)
        self.line, self.column = line, column
        self.is_syntax = is_syntax  # another version of Python may think otherwise


class NotLookedAt(ValueError):
    """A file that may well be Python, but is nothing for us."""


@dataclass(frozen=True, slots=True)
class Source:
    """A file's text as Python."""

    path: Path
    text: str
    notebook: Notebook | None = None
    faults: tuple[Unreadable, ...] = ()  # what was mended or left out
    original: str = ""  # the text before that
    is_whole: bool = True  # False: names may come from parts that are not seen


def read_source(path: Path, text: str | None = None, named: Sequence[Path] = ()) -> Source:
    """Read a file, or take its text. Raises Unreadable or NotLookedAt. `named`: what the command
    line names."""
    is_notebook = path.suffix == ".ipynb"
    try:
        if text is None:
            largest = LARGEST_NOTEBOOK if is_notebook else LARGEST
            text = decode(read_bytes(path, largest, named)).text
        text = text.removeprefix(BOM)
        notebook = read_notebook(text) if is_notebook else None
    except NotLookedAt:
        raise
    except (OSError, ValueError) as error:
        raise Unreadable(f"this file cannot be read: {error}") from None
    if notebook is not None:
        text = notebook.text
    if len(text) > LARGEST:
        raise NotLookedAt(too_large(LARGEST))
    if notebook is None:  # a cell that is too much is left out alone
        try:
            refuse_huge_strings(text)
        except TooManyFields as error:
            raise NotLookedAt(f"this file is not parsed: {error}") from None
    return Source(path, text, notebook, is_whole=notebook is None or notebook.is_whole)


def read_bytes(path: Path, largest: int, named: Sequence[Path] = ()) -> bytes:
    """Read a file that is one: devices and pipes may have no end, and links may lead elsewhere,
    also since the file was found. Raises OSError, NotLookedAt."""
    try:
        descriptor = open_real(resolve(path, named))
    except (NotRegular, LeadsOut) as error:
        raise NotLookedAt(str(error)) from None
    with open(descriptor, "rb") as file:
        if os.fstat(descriptor).st_size > largest:
            raise NotLookedAt(too_large(largest))
        data = file.read(largest + 1)  # some files, as in /proc, have no size
    if len(data) > largest:
        raise NotLookedAt(too_large(largest))
    return data


def too_large(largest: int) -> str:
    return f"this file is larger than {largest:,} bytes: leave it out with `exclude`"


def mended(source: Source) -> Source:
    """Give a source that can be parsed, with its faults. Raises Unreadable if it cannot be."""
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
    """Give a text with `pass` where a body is missing. Raises Unreadable for all else."""
    faults: list[Unreadable] = []
    most = min(MENDED, MENDED_CHARACTERS // (len(text) + 1))
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
    if len(line) > LONGEST_HEADER:
        return line
    try:
        for token in tokenize.generate_tokens(io.StringIO(line).readline):
            if token.type == tokenize.COMMENT:
                return line[: token.start[1]]
    except (tokenize.TokenError, IndentationError, SyntaxError):
        pass
    return line
