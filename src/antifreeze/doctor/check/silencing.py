"""`# antifreeze: allow[rule-name]`: which findings a file's own comments silence.

1. On a line of the finding, or on a line of its own just above it: that finding.
2. Before the first statement of the file: the whole file.
3. A reason may follow: `# antifreeze: allow[rule-name] read once, at start`.
"""

from __future__ import annotations

import io
import re
import tokenize
from collections.abc import Iterable
from dataclasses import dataclass, field

from .found import Found

_ALLOW = re.compile(r"#\s*antifreeze:\s*allow\[([\w\-, ]+)\]")
_WORD = "antifreeze:"


@dataclass(slots=True, eq=False)
class Allow:
    """One comment."""

    line: int
    column: int
    names: tuple[str, ...]
    whole_file: bool
    alone: bool  # nothing else on its line
    used: set[str] = field(default_factory=set)

    def covers(self, found: Found) -> str | None:
        """Give the name by which it allows a finding."""
        first, last = found.header
        near = first <= self.line <= last or (self.alone and self.line + 1 == first)
        if not (near or self.whole_file):
            return None
        return next((n for n in self.names if n in (found.name, found.code)), None)


def read_allows(text: str) -> list[Allow]:
    """Give the allows of a file's text."""
    if _WORD not in text:
        return []
    allows: list[Allow] = []
    code_seen = False
    alone = True
    try:
        for token in tokenize.generate_tokens(io.StringIO(text).readline):
            if token.type == tokenize.COMMENT:
                match = _ALLOW.search(token.string)
                if match is not None:
                    names = tuple(each.strip() for each in match[1].split(",") if each.strip())
                    names = tuple(n.upper() if n[:2].lower() == "af" else n for n in names)
                    line, column = token.start
                    allows.append(Allow(line, column, names, not code_seen, alone))
            elif token.type in (tokenize.NEWLINE, tokenize.NL):
                alone = True
            elif token.type not in (tokenize.INDENT, tokenize.DEDENT, tokenize.ENCODING):
                alone = False
                code_seen = True
    except (tokenize.TokenError, IndentationError, SyntaxError):
        pass  # it is reported as a file that cannot be read; what came before counts
    return _stacked(allows)


def _stacked(allows: list[Allow]) -> list[Allow]:
    """Let several comments above one line count for that line."""
    by_line = {each.line: each for each in allows if each.alone}
    for each in sorted(allows, key=lambda one: -one.line):
        below = by_line.get(each.line + 1)
        if each.alone and below is not None:
            each.line = below.line
    return allows


def silence(found: Iterable[Found], allows: list[Allow]) -> list[Found]:
    """Give what no comment allows, and note which comments did something."""
    left = []
    for each in found:
        covered = False
        for allow in allows:
            name = allow.covers(each)
            if name is not None:
                allow.used.add(name)
                covered = True
        if not covered:
            left.append(each)
    return left
