"""Render what a fix changes as a unified diff, also of files in which everything changes."""

from __future__ import annotations

import bisect
import difflib
from collections import Counter
from collections.abc import Iterator

from ...source.syntax.line_splitting import lines_with_ends

CONTEXT_LINES = 3  # lines before and after a change
# Lines that `difflib` compares by itself. It may take their square: 20,000 took a minute.
MOST_DIFFLIB_LINES = 2_000
_NO_END = "\\ No newline at end of file\n"


def as_diff(path: str, before: str, after: str) -> str:
    """Return what a fix changes, as a unified diff."""
    old, new = lines_with_ends(before), lines_with_ends(after)
    matcher = (
        _Long(old, new)
        if len(old) > MOST_DIFFLIB_LINES
        else difflib.SequenceMatcher(None, old, new)
    )
    lines: list[str] = []
    for group in matcher.get_grouped_opcodes(CONTEXT_LINES):
        first, last = group[0], group[-1]
        lines.append(f"@@ -{_range(first[1], last[2])} +{_range(first[3], last[4])} @@\n")
        for tag, old_start, old_end, new_start, new_end in group:
            if tag == "equal":
                lines += (f" {each}" for each in old[old_start:old_end])
                continue
            lines += (f"-{each}" for each in old[old_start:old_end])
            lines += (f"+{each}" for each in new[new_start:new_end])
    if lines:
        lines[:0] = [f"--- {path} (before)\n", f"+++ {path} (after)\n"]
    return "".join(map(_shown, lines))


class _Long(difflib.SequenceMatcher[str]):
    """Compares many lines in hardly more steps than there are lines."""

    def __init__(self, old: list[str], new: list[str]) -> None:
        super().__init__(None, old, new)
        self._old, self._new = old, new

    def get_matching_blocks(self) -> list[difflib.Match]:
        old, new = self._old, self._new
        found: list[difflib.Match] = []
        for here, there, size in _blocks(old, new):
            last = found[-1] if found else difflib.Match(-1, -1, 0)
            if (last.a + last.size, last.b + last.size) == (here, there):
                found[-1] = difflib.Match(last.a, last.b, last.size + size)
            else:
                found.append(difflib.Match(here, there, size))
        return [*found, difflib.Match(len(old), len(new), 0)]


def _range(start: int, end: int) -> str:
    if end - start == 1:
        return f"{start + 1}"
    return f"{start + (end > start)},{end - start}"


def _shown(line: str) -> str:
    """Return a line of a diff: it ends as lines of this output do, not as those of the file."""
    bare = line.rstrip("\r\n")
    return f"{bare}\n" if bare != line else f"{bare}\n{_NO_END}"


def _blocks(old: list[str], new: list[str]) -> Iterator[tuple[int, int, int]]:
    """Return what both have in common, in order: from where to where, and how many lines. Lines
    that each has once are found first, and then all that are equal before and after them."""
    done_old = done_new = 0
    for here, there in [*_anchors(old, new), (len(old), len(new))]:
        if here < done_old or there < done_new:
            continue  # a part of the block before
        size = _common(old, new, done_old, done_new, (here, there))
        if size:
            yield done_old, done_new, size
        back = 0
        while here - back > done_old + size and there - back > done_new + size:
            if old[here - back - 1] != new[there - back - 1]:
                break
            back += 1
        start_old, start_new = here - back, there - back
        size = back + _common(old, new, here, there, (len(old), len(new)))
        if size:
            yield start_old, start_new, size
        done_old, done_new = start_old + size, start_new + size


def _common(old: list[str], new: list[str], here: int, there: int, end: tuple[int, int]) -> int:
    """Return how many lines are equal from two places on."""
    size = 0
    while here + size < end[0] and there + size < end[1] and old[here + size] == new[there + size]:
        size += 1
    return size


def _anchors(old: list[str], new: list[str]) -> list[tuple[int, int]]:
    """Return the places of lines that each text has once, as many as are in the same order."""
    counts, others = Counter(old), Counter(new)
    place = {line: n for n, line in enumerate(new) if others[line] == 1}
    pairs = [(n, place[line]) for n, line in enumerate(old) if counts[line] == 1 and line in place]
    tails: list[int] = []  # the least last place of a run of each length
    at: list[int] = []
    before: list[int] = []
    for number, (_, there) in enumerate(pairs):
        length = bisect.bisect_left(tails, there)
        before.append(at[length - 1] if length else -1)
        if length == len(tails):
            tails.append(there)
            at.append(number)
        else:
            tails[length], at[length] = there, number
    found = []
    number = at[-1] if at else -1
    while number >= 0:
        found.append(pairs[number])
        number = before[number]
    return found[::-1]
