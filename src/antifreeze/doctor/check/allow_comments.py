"""Read `# antifreeze: allow[rule-name]` comments, and drop the findings that they allow.

1. On a line of the finding, or above it, on lines with nothing but comments: that finding.
2. Before the first statement of the file: the whole file.
3. A reason may follow, also on more lines: `# antifreeze: allow[rule-name] read once, at start`.
"""

from __future__ import annotations

import bisect
import io
import re
import tokenize
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field

from ..rules import find_rule
from .check_result import RuleFinding

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


def read_allows(text: str) -> list[Allow]:
    """Return the allows of a file's text."""
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
    end = 0
    for line in sorted(alone, reverse=True):
        if line + 1 not in alone:
            end = line + 1  # the first line from here on that has more than a comment
        for each in alone[line]:
            each.until = end
    return allows


def _comments(text: str) -> Iterator[tuple[tokenize.TokenInfo, bool, bool]]:
    """Yield the comments; of each whether it has its line to itself, and whether code was
    before."""
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
    """Yield where each `allow[...]` of a comment is, and what it names."""
    start = _ALLOWS.search(comment)
    if start is None:
        return
    for number, match in enumerate(_ALLOW.finditer(comment, start.start())):
        words = [each.strip() for each in match[1].split(",") if each.strip()]
        found = {word: find_rule(word) for word in words}
        codes = {word: rule.code if rule is not None else None for word, rule in found.items()}
        yield match.start() if number else start.start(), codes


class Allows:
    """The allows of a file, by the rules that they name: neither many allows nor many findings take
    more than their own number of steps."""

    def __init__(self, allows: list[Allow]) -> None:
        self._everywhere: dict[str, list[Allow]] = {}
        self._near: dict[str, _Near] = {}
        for allow in sorted(allows, key=lambda each: each.line):
            for code in {each for each in allow.codes.values() if each is not None}:
                if allow.whole_file:
                    self._everywhere.setdefault(code, []).append(allow)
                else:
                    self._near.setdefault(code, _Near()).add(allow)

    def silence(self, found: Iterable[RuleFinding]) -> list[RuleFinding]:
        """Return what no comment allows, and note which comments did something."""
        left = []
        for each in found:
            everywhere = self._everywhere.get(each.code, [])
            if everywhere and each.code not in everywhere[-1].used:
                for allow in everywhere:
                    allow.used.add(each.code)
            near = self._near.get(each.code)
            if not (near is not None and near.use(each)) and not everywhere:
                left.append(each)
        return left


class _Near:
    """The allows of one rule, in the order of their lines; where they end has the same order."""

    def __init__(self) -> None:
        self._allows: list[Allow] = []
        self._lines: list[int] = []
        self._ends: list[int] = []
        self._next: list[int] = []  # of each: the first from there on that was not used yet

    def add(self, allow: Allow) -> None:
        self._allows.append(allow)
        self._lines.append(allow.line)
        self._ends.append(allow.until)
        self._next.append(len(self._next))

    def use(self, found: RuleFinding) -> bool:
        """Note that all allows near a finding are used; whether there are any."""
        first, last = found.header
        start, end = bisect.bisect_left(self._ends, first), bisect.bisect_right(self._lines, last)
        place = self._unused(start)
        while place < end:
            self._allows[place].used.add(found.code)
            self._next[place] = place + 1
            place = self._unused(place)
        return start < end

    def _unused(self, place: int) -> int:
        """Return the first place from here on that was not used; ways there become shorter."""
        way = []
        while place < len(self._next) and self._next[place] != place:
            way.append(place)
            place = self._next[place]
        for each in way:
            self._next[each] = place
        return place
