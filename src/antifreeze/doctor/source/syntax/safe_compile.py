"""Compile other people's source: nothing on stderr, no file opened, in bounded time.

1. A warning, or an error in Python 3.11, has the line that it is about read from a file of the name
   that was given to `compile`. In a folder of others that may be a link or a pipe.
2. Before Python 3.12 each field of an f-string takes as many steps as the string is long.
"""

from __future__ import annotations

import re
import sys
import warnings
from typing import Any

NOWHERE = "/dev/null/"  # no file can be below it
# Fields times characters, of all f-strings together: about a second.
MOST_FSTRING_STEPS = 2_000_000_000
_IS_SLOW = sys.version_info < (3, 12)
# As the tokenizer takes them; what it would refuse does not matter. Every quantifier keeps what it
# has taken, so that a text is read once.
_STRINGS = re.compile(
    r"""
    \#[^\r\n]*+
    | ([fF][rR]?+ | [rR][fF])?+
      (?: \"{3} (?: [^"\\]++ | \\. | "(?!"") )*+ (?: \"{3} )?+
        | '{3}  (?: [^'\\]++ | \\. | '(?!'') )*+ (?: '{3} )?+
        | "     (?: [^"\\\r\n]++ | \\(?: \r\n | . ) )*+ "?+
        | '     (?: [^'\\\r\n]++ | \\(?: \r\n | . ) )*+ '?+
      )
    """,
    re.VERBOSE | re.DOTALL,
)


class TooManyFields(ValueError):
    """F-strings of a text would take Python's parser minutes."""


def compile_quietly(text: str, flags: int = 0, name: str = "source") -> Any:
    """Compile a text, or parse it with `ast.PyCF_ONLY_AST`. Raise SyntaxError, ValueError,
    RecursionError, MemoryError; `name` is in the words of the first."""
    refuse_huge_strings(text)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # another linter's business
        return compile(text, NOWHERE + name, "exec", flags, dont_inherit=True)


def refuse_huge_strings(text: str) -> None:
    """Raise TooManyFields if this Python would take minutes to parse the f-strings of a text."""
    if not _IS_SLOW or text.count("{") * len(text) <= MOST_FSTRING_STEPS:
        return
    steps = 0
    for found in _STRINGS.finditer(text):
        if found[1]:
            steps += found[0].count("{") * len(found[0])
    if steps > MOST_FSTRING_STEPS:
        raise TooManyFields("its f-strings have too many fields for this version of Python")
