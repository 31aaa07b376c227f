"""Split text into lines as Python counts them.

`\\n`, `\\r\\n` and a lone `\\r` end a line. A form feed does not, though
`splitlines` splits there, too.
"""

from __future__ import annotations

import functools
import re

LINE_END = re.compile(r"\r\n|\r|\n")


@functools.lru_cache(maxsize=2)  # every finding of a file asks for the same ones
def split_lines(text: str) -> tuple[str, ...]:
    """Return the lines of a text, without their ends; the last is empty if the text ends a line."""
    return tuple(LINE_END.split(text))


def lines_with_ends(text: str) -> list[str]:
    """Return the lines of a text with their ends."""
    ends = [*LINE_END.findall(text), ""]
    lines = [line + end for line, end in zip(split_lines(text), ends, strict=True)]
    return lines if lines[-1] else lines[:-1]
