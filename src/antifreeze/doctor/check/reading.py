"""One file's text as Python: decoded, by cell, and mended where only a part of it is broken.

1. A block without a body (`for x in y:` and then only comments) is read as if it had `pass`.
2. A cell that cannot be read is left out; the others are read.
3. Each is reported (AF001) all the same. Lines and columns stay what they were.
"""

from __future__ import annotations

import ast
import dataclasses
import io
import re
import sys
import tokenize
import warnings
from dataclasses import dataclass
from pathlib import Path

from ..source.notebooks import Notebook, read_notebook

LARGEST = 4_000_000  # characters; larger files are generated, and take many seconds each
MENDED = 20  # bodies that are missing, in one file: more is no Python
_NO_BODY = re.compile(r"expected an indented block after .* on line (\d+)")


# A file may be in the syntax of a newer one than that which runs us.
PYTHON = "Python {}.{}".format(*sys.version_info)


class Unreadable(ValueError):
    """A file, or a part of one, that cannot be read; with the place if there is one."""

    def __init__(self, words: str, line: int = 1, column: int = 0) -> None:
        super().__init__(words)
        self.line, self.column = line, column


@dataclass(frozen=True, slots=True)
class Source:
    """A file's text as Python."""

    path: Path
    text: str
    notebook: Notebook | None = None
    faults: tuple[Unreadable, ...] = ()  # what was mended or left out
    original: str = ""  # the text before that
    is_whole: bool = True  # False: names may come from parts that are not seen


def read_source(path: Path, text: str | None = None) -> Source:
    """Read a file, or take its text. Raises Unreadable."""
    try:
        if text is None:
            text = _decode(path.read_bytes())
        if path.suffix == ".ipynb":
            notebook = read_notebook(text)
            return Source(path, notebook.text, notebook, is_whole=notebook.is_whole)
    except (OSError, ValueError) as error:
        raise Unreadable(f"this file cannot be read: {error}") from None
    if len(text) > LARGEST:
        raise Unreadable(f"this file has more than {LARGEST:,} characters: it is not looked at")
    return Source(path, text.removeprefix("\ufeff"))


def _decode(data: bytes) -> str:
    """Decode as Python does, but never fail: a wrong letter in a comment is no reason."""
    try:
        encoding, _ = tokenize.detect_encoding(io.BytesIO(data).readline)
        return data.decode(encoding)
    except (SyntaxError, UnicodeDecodeError, LookupError):
        return data.decode("utf-8", errors="replace")


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
        every += (Unreadable(str(each), each.line + start, each.column) for each in found)
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
    while True:
        try:
            _compile(text)
            return text, tuple(faults)
        except SyntaxError as error:
            match = _NO_BODY.match(error.msg)
            new = _with_pass(text, int(match[1]), error.lineno or 1) if match is not None else None
            if new is None or len(faults) >= MENDED:
                words = f"{what} cannot be read as {PYTHON}: {error.msg}"
                column = max(0, (error.offset or 1) - 1)
                raise Unreadable(words, error.lineno or 1, column) from None
            assert match is not None
            line = int(match[1])
            header = re.split(r"\r\n|\r|\n", text)[line - 1]
            column = len(header) - len(header.lstrip())
            words = "the block has no body, only comments at most: a SyntaxError"
            faults.append(Unreadable(words, line, column))
            text = new
        except (ValueError, RecursionError, MemoryError) as error:
            words = f"{what} cannot be read as {PYTHON}: {str(error) or type(error).__name__}"
            raise Unreadable(words) from None


def _compile(text: str) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        compile(text, "file", "exec", ast.PyCF_ONLY_AST | ast.PyCF_ALLOW_TOP_LEVEL_AWAIT)


def _with_pass(text: str, first: int, until: int) -> str | None:
    """Put `pass` behind the colon of a statement that begins at a line."""
    lines = re.split(r"(\r\n|\r|\n)", text)[::2]
    ends = [*re.findall(r"\r\n|\r|\n", text), ""]
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
    try:
        for token in tokenize.generate_tokens(io.StringIO(line).readline):
            if token.type == tokenize.COMMENT:
                return line[: token.start[1]]
    except (tokenize.TokenError, IndentationError, SyntaxError):
        pass
    return line
