"""Read a file's text as Python: decoded, and of a notebook its cells as one text."""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from ...._linux.regular_files import NotRegular, open_real
from ...source.syntax.notebooks import Notebook, read_notebook
from ...source.syntax.safe_compile import TooManyFields, refuse_huge_strings
from .symlinks import LinkLeadsOut, resolve
from .text_encoding import BOM, decode

# Bytes, or characters; larger files are generated, and take many seconds each.
MOST_SOURCE_BYTES = 4_000_000
# Bytes: pictures are inside; the code in it is at most MOST_SOURCE_BYTES.
MOST_NOTEBOOK_BYTES = 64_000_000


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


class SkippedFile(ValueError):
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
    """Read a file, or take its text. Raise Unreadable or SkippedFile. `named`: what the command
    line names."""
    is_notebook = path.suffix == ".ipynb"
    try:
        if text is None:
            largest = MOST_NOTEBOOK_BYTES if is_notebook else MOST_SOURCE_BYTES
            text = decode(read_bytes(path, largest, named)).text
        text = text.removeprefix(BOM)
        notebook = read_notebook(text) if is_notebook else None
    except SkippedFile:
        raise
    except (OSError, ValueError) as error:
        raise Unreadable(f"this file cannot be read: {error}") from None
    if notebook is not None:
        text = notebook.text
    if len(text) > MOST_SOURCE_BYTES:
        raise SkippedFile(too_large(MOST_SOURCE_BYTES))
    if notebook is None:  # a cell that is too much is left out alone
        try:
            refuse_huge_strings(text)
        except TooManyFields as error:
            raise SkippedFile(f"this file is not parsed: {error}") from None
    return Source(path, text, notebook, is_whole=notebook is None or notebook.is_whole)


def read_bytes(path: Path, largest: int, named: Sequence[Path] = ()) -> bytes:
    """Read a file that is one: devices and pipes may have no end, and links may lead elsewhere,
    also since the file was found. Raise OSError, SkippedFile."""
    try:
        descriptor = open_real(resolve(path, named))
    except (NotRegular, LinkLeadsOut) as error:
        raise SkippedFile(str(error)) from None
    with open(descriptor, "rb") as file:
        if os.fstat(descriptor).st_size > largest:
            raise SkippedFile(too_large(largest))
        data = file.read(largest + 1)  # some files, as in /proc, have no size
    if len(data) > largest:
        raise SkippedFile(too_large(largest))
    return data


def too_large(largest: int) -> str:
    return f"this file is larger than {largest:,} bytes: leave it out with `exclude`"
