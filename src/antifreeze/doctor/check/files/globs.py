"""Match globs without backtracking: those of git, and those of `exclude`.

1. A text becomes one integer for each of its characters: bit n is set where it stands at place n.
2. A glob is a list of steps. Each moves a set of places, one integer, along the text.
3. So a match takes as many operations as the glob has steps, whatever the text is. A regular
   expression may take exponentially many, and patterns come from repositories of others.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TypeAlias

SLASH = "/"
_SPECIAL = frozenset("*?[\\")
_POSIX = {  # of ASCII, as in git: a class is a list of ranges
    "alnum": ("09", "AZ", "az"),
    "alpha": ("AZ", "az"),
    "blank": ("  ", "\t\t"),
    "cntrl": ("\x00\x1f", "\x7f\x7f"),
    "digit": ("09",),
    "graph": ("!~",),
    "lower": ("az",),
    "print": (" ~",),
    "punct": ("!/", ":@", "[`", "{~"),
    "space": ("\t\r", "  "),
    "upper": ("AZ",),
    "xdigit": ("09", "AF", "af"),
}


class Text:
    """A text, with the places of its characters: asked once, for all globs that are tried."""

    __slots__ = ("_characters", "every", "text")

    def __init__(self, text: str) -> None:
        self.text = text
        self.every = (1 << (len(text) + 1)) - 1  # all places, the end included
        self._characters: dict[str, int] | None = None

    def __repr__(self) -> str:
        return f"Text({self.text!r})"

    @property
    def characters(self) -> dict[str, int]:
        """Return the places of each character."""
        if self._characters is None:
            found: dict[str, int] = {}
            bit = 1
            for each in self.text:
                found[each] = found.get(each, 0) | bit
                bit <<= 1
            self._characters = found
        return self._characters

    def places(self, character: str) -> int:
        return self.characters.get(character, 0)


Step: TypeAlias = Callable[[int, Text], int]  # places before -> places after


@dataclass(frozen=True, slots=True)
class Literal:
    """These characters."""

    text: str

    def __call__(self, places: int, text: Text) -> int:
        for each in self.text:
            places = (places & text.places(each)) << 1
            if not places:
                break
        return places


@dataclass(frozen=True, slots=True)
class OneOf:
    """One character of some ranges, or of none of them."""

    ranges: tuple[tuple[str, str], ...]
    negated: bool = False
    crosses: bool = False  # it may be a slash

    def __call__(self, places: int, text: Text) -> int:
        fits = 0
        for each, where in text.characters.items():
            if each == SLASH and not self.crosses:
                continue
            if any(low <= each <= high for low, high in self.ranges) != self.negated:
                fits |= where
        return (places & fits) << 1


def one_name(places: int, text: Text) -> int:
    """`*` of a path: any characters, but no slash."""
    runs = (text.every >> 1) & ~text.places(SLASH)
    return (((places & runs) + runs) ^ runs) | places  # the carry runs to the end of each run


def anything(places: int, text: Text) -> int:
    """Any characters, slashes too."""
    return text.every & -(places & -places) if places else 0


def any_folders(places: int, text: Text) -> int:
    """`**/`: any number of folders, also none."""
    return places | ((anything(places, text) & text.places(SLASH)) << 1)


def nothing(places: int, text: Text) -> int:
    """A glob that was never finished, such as `[a`: it fits nothing."""
    return 0


class Glob:
    """A pattern that was read."""

    __slots__ = ("_head", "_steps", "_tail", "cost", "ending", "literal")

    def __init__(self, steps: list[Step]) -> None:
        first, last = (steps[0], steps[-1]) if steps else (None, None)
        self._steps = steps
        # Most texts differ at an end: these are asked before any place is counted.
        self._head = first.text if isinstance(first, Literal) else ""
        self._tail = last.text if isinstance(last, Literal) else ""
        self.literal = self._head if all(isinstance(each, Literal) for each in steps) else None
        is_ending = first is one_name and (len(steps) == 1 or (len(steps) == 2 and self._tail))
        self.ending = self._tail if is_ending else None  # `*.pyc`: of a name without slashes
        self.cost = 1 + sum(len(e.text) if isinstance(e, Literal) else 1 for e in steps)

    def __repr__(self) -> str:
        return f"Glob({self._steps})"

    def matches(self, text: Text) -> bool:
        """Whether the whole text fits."""
        if self.literal is not None:
            return text.text == self.literal
        if not (text.text.startswith(self._head) and text.text.endswith(self._tail)):
            return False
        places = 1
        for each in self._steps:
            places = each(places, text)
            if not places:
                return False
        return bool(places & (1 << len(text.text)))


# ---- git's ---------------------------------------------------------------------------------------


def git_glob(pattern: str) -> Glob:
    """Read a pattern of a .gitignore, without its `!` and the slashes at its ends."""
    # git compares what has no special character first, and then begins anew: so `a**/b` has two
    # stars at a beginning.
    fixed = _plain_length(pattern)
    steps: list[Step] = [Literal(pattern[:fixed])] if fixed else []
    place = fixed
    while place < len(pattern):
        step, place = _git_step(pattern, place, fixed)
        _add(steps, step)
    return Glob(steps)


def _plain_length(pattern: str) -> int:
    return next((n for n, each in enumerate(pattern) if each in _SPECIAL), len(pattern))


def _git_step(pattern: str, place: int, start: int) -> tuple[Step, int]:
    """Return the step at a place, and where the next one begins."""
    match pattern[place]:
        case "*":
            return _stars(pattern, place, start)
        case "?":
            return OneOf((), negated=True), place + 1
        case "[":
            return _git_class(pattern, place + 1)
        case "\\":
            if place + 1 == len(pattern):
                return nothing, place + 1
            return Literal(pattern[place + 1]), place + 2
        case other:
            return Literal(other), place + 1


def _stars(pattern: str, place: int, start: int) -> tuple[Step, int]:
    end = place
    while end < len(pattern) and pattern[end] == "*":
        end += 1
    begins = place == start or pattern[place - 1] == SLASH
    if end - place >= 2 and begins:
        if pattern[end : end + 1] == SLASH:
            return any_folders, end + 1
        if end == len(pattern) or pattern[end : end + 2] == "\\/":
            return anything, end
    return one_name, end


def _git_class(pattern: str, place: int) -> tuple[Step, int]:
    """Read `[...]` from behind its bracket."""
    negated = pattern[place : place + 1] in ("!", "^")
    place += negated
    ranges: list[tuple[str, str]] = []
    before = ""  # what a `-` would begin at
    first = True
    while first or pattern[place : place + 1] != "]":
        first = False
        here = pattern[place : place + 1]
        if not here:
            return nothing, len(pattern)
        if here == "-" and before and pattern[place + 1 : place + 2] not in ("", "]"):
            place += 1
            if pattern[place] == "\\":
                place += 1
            high = pattern[place : place + 1]
            if not high:
                return nothing, len(pattern)
            ranges.append((before, high))
            before = ""
        elif pattern[place : place + 2] == "[:":
            end = pattern.find("]", place + 2)
            if end < 0:
                return nothing, len(pattern)
            if end < place + 3 or pattern[end - 1] != ":":  # none: an ordinary bracket
                ranges.append(("[", "["))
                before = "["
            else:
                named = _POSIX.get(pattern[place + 2 : end - 1])
                if named is None:
                    return nothing, len(pattern)
                ranges += ((each[0], each[1]) for each in named)
                before, place = "", end
        else:
            if here == "\\":
                place += 1
                here = pattern[place : place + 1]
                if not here:
                    return nothing, len(pattern)
            ranges.append((here, here))
            before = here
        place += 1
    return OneOf(tuple(ranges), negated=negated), place + 1


# ---- those of settings ---------------------------------------------------------------------------


def settings_glob(pattern: str) -> Glob:
    """Read a pattern of `exclude` or `per-path`. As in `fnmatch`, `*` and `?` cross slashes, and
    nothing is escaped; `**/` also means no folder at all, which `fnmatch` does not know."""
    steps: list[Step] = []
    place = 0
    while place < len(pattern):
        here = pattern[place]
        if pattern.startswith("**/", place):
            _add(steps, any_folders)
            place += 3
        elif here == "*":
            _add(steps, anything)
            place += 1
        elif here == "?":
            _add(steps, OneOf((), negated=True, crosses=True))
            place += 1
        elif here == "[" and (end := _class_end(pattern, place + 1)) is not None:
            _add(steps, _class(pattern[place + 1 : end]))
            place = end + 1
        else:
            _add(steps, Literal(here))
            place += 1
    return Glob(steps)


def _class_end(pattern: str, place: int) -> int | None:
    """Return where a `[...]` ends; None if it does not: then it is an ordinary bracket."""
    start = place + (pattern[place : place + 1] == "!")
    end = pattern.find("]", start + 1)  # one at the very beginning is a member
    return end if end >= 0 else None


def _class(inside: str) -> OneOf:
    negated = inside.startswith("!")
    members = inside[negated:]
    ranges: list[tuple[str, str]] = []
    place = 0
    while place < len(members):
        if place + 2 < len(members) and members[place + 1] == "-":
            ranges.append((members[place], members[place + 2]))
            place += 3
        else:
            ranges.append((members[place], members[place]))
            place += 1
    return OneOf(tuple(ranges), negated=negated, crosses=True)


def _add(steps: list[Step], step: Step) -> None:
    """Add a step; characters become one, and a star after a star is none."""
    if steps and isinstance(step, Literal) and isinstance(steps[-1], Literal):
        steps[-1] = Literal(steps[-1].text + step.text)
    elif not (steps and step is steps[-1] and step in (one_name, anything, any_folders)):
        steps.append(step)
