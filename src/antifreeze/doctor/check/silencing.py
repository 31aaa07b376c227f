"""`# antifreeze: allow[rule-name]`: which findings a file's own comments silence.

1. On a line of the finding, or above it, on lines with nothing but comments: that finding.
2. Before the first statement of the file: the whole file.
3. A reason may follow, also on more lines: `# antifreeze: allow[rule-name] read once, at start`.
"""

from __future__ import annotations

import io
import re
import tokenize
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field

from ..rules import find_rule
from .found import Found

_ALLOWS = re.compile(r"#\s*antifreeze:\s*allow\[")
_ALLOW = re.compile(r"\ballow\[([\w\-, ]+)\]")
_WORD = "antifreeze:"


@dataclass(slots=True, eq=False)
class Allow:
    """One `allow[...]`."""

    line: int
    column: int
    codes: dict[str, str | None]  # what is written -> the rule's code; None: there is no such rule
    whole_file: bool
    until: int  # the last line that it is for: its own, or the first below that is no comment
    used: set[str] = field(default_factory=set)  # codes

    def covers(self, found: Found) -> bool:
        """Say whether it allows a finding."""
        first, last = found.header
        near = self.line <= last and first <= self.until
        return (near or self.whole_file) and found.code in self.codes.values()


def read_allows(text: str) -> list[Allow]:
    """Give the allows of a file's text."""
    if _WORD not in text:
        return []
    allows: list[Allow] = []
    alone: dict[int, list[Allow]] = {}  # lines with nothing but a comment, with its allows
    for token, is_first, code_seen in _comments(text):
        line, column = token.start
        mine = [
            Allow(line, column + at, codes, not code_seen, line)
            for at, codes in _codes(token.string)
        ]
        allows += mine
        if is_first:
            alone[line] = mine
    for line, mine in alone.items():
        for each in mine:
            each.until = _end_of(line, alone)
    return allows


def _end_of(line: int, alone: dict[int, list[Allow]]) -> int:
    """Give the first line from here on that has more than a comment."""
    while line in alone:
        line += 1
    return line


def _comments(text: str) -> Iterator[tuple[tokenize.TokenInfo, bool, bool]]:
    """Give the comments; of each whether it has its line to itself, and whether code was before."""
    is_first, code_seen = True, False
    lines = io.StringIO(text, newline=None)  # a lone `\r` ends a line for Python, too
    try:
        for token in tokenize.generate_tokens(lines.readline):
            if token.type == tokenize.COMMENT:
                yield token, is_first, code_seen
            elif token.type in (tokenize.NEWLINE, tokenize.NL):
                is_first = True
            elif token.type not in (tokenize.INDENT, tokenize.DEDENT, tokenize.ENCODING):
                is_first, code_seen = False, True
    except (tokenize.TokenError, IndentationError, SyntaxError):
        pass  # it is reported as a file that cannot be read; what came before counts


def _codes(comment: str) -> Iterator[tuple[int, dict[str, str | None]]]:
    """Give where each `allow[...]` of a comment is, and what it names."""
    start = _ALLOWS.search(comment)
    if start is None:
        return
    for number, match in enumerate(_ALLOW.finditer(comment, start.start())):
        words = [each.strip() for each in match[1].split(",") if each.strip()]
        found = {word: find_rule(word) for word in words}
        codes = {word: rule.code if rule is not None else None for word, rule in found.items()}
        yield match.start() if number else start.start(), codes


def silence(found: Iterable[Found], allows: list[Allow]) -> list[Found]:
    """Give what no comment allows, and note which comments did something."""
    left = []
    for each in found:
        covering = [allow for allow in allows if allow.covers(each)]
        for allow in covering:
            allow.used.add(each.code)
        if not covering:
            left.append(each)
    return left
