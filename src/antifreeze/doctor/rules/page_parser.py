"""Read a rule's page: the Markdown file beside the rule.

1. The first line is `# ` and the title. Then come sections, each under a heading of `PROSE` or
   `PROGRAMS`, in that order; `OPTIONAL` ones may be missing, and no section may be empty.
2. A section of `PROSE` is Markdown without headings or fences.
3. A section of `PROGRAMS` is nothing but blocks fenced as Python: one, or several where the rule
   page takes several.
4. Anything else is an error that names the file and the line.
"""

from __future__ import annotations

import functools
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

PROSE = ("What is flagged", "Why", "Instead", "What is not flagged")
PROGRAMS = ("Flagged", "Not flagged", "Also flagged", "Also not flagged")
OPTIONAL = frozenset({"What is not flagged", "Also flagged", "Also not flagged"})
_SEVERAL = frozenset({"Also flagged", "Also not flagged"})
_ORDER = (*PROSE, *PROGRAMS)
_FENCE = "```"
_BEGIN = "```python"


class BadPage(ValueError):
    """The page of a rule is not written as pages are."""


@dataclass(frozen=True, slots=True)
class RulePage:
    """The texts of a rule, in Markdown, and its examples."""

    title: str  # a few words: the heading of the page
    what: str  # what is flagged
    why: str  # what happens then, and how we know: a link or a measurement
    instead: str  # what to do
    not_flagged: str  # what looks like it and is fine; may be empty
    bad: str  # a program in which exactly this rule finds something
    good: str  # the same, done right: no rule finds anything
    also_bad: tuple[str, ...] = ()
    also_good: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class _Section:
    heading: str
    start: int  # the line of the heading, from 1
    lines: Sequence[str]  # below the heading


@functools.cache
def read_page(path: Path) -> RulePage:
    """Read the page of a rule. Raise BadPage if something of it is missing or not known."""
    return parse_page(path.read_text(encoding="utf-8"), str(path))


def parse_page(text: str, name: str) -> RulePage:
    """Parse the text of a page. `name`: how errors call it."""
    lines = text.split("\n")
    if not lines[0].startswith("# ") or not (title := lines[0][2:].strip()):
        raise BadPage(f"{name}:1: the first line is not `# ` and the title of the rule")
    sections = _sections(lines, name)
    if missing := [each for each in _ORDER if each not in sections and each not in OPTIONAL]:
        raise BadPage(f"{name}:{len(lines)}: there is no section `## {missing[0]}`")
    prose = {each: _prose(sections[each], name) if each in sections else "" for each in PROSE}
    programs = {
        each: _programs(sections[each], name) if each in sections else () for each in PROGRAMS
    }
    return RulePage(
        title=title,
        what=prose["What is flagged"],
        why=prose["Why"],
        instead=prose["Instead"],
        not_flagged=prose["What is not flagged"],
        bad=programs["Flagged"][0],
        good=programs["Not flagged"][0],
        also_bad=programs["Also flagged"],
        also_good=programs["Also not flagged"],
    )


def _sections(lines: Sequence[str], name: str) -> dict[str, _Section]:
    starts: list[int] = []
    is_fenced = False
    for place, line in enumerate(lines[1:], start=1):
        if line.startswith("#") and not is_fenced:
            starts.append(place)
        elif line and not starts:
            raise BadPage(f"{name}:{place + 1}: text before the first section")
        elif line.startswith(_FENCE):
            is_fenced = not is_fenced
    found: dict[str, _Section] = {}
    expected = iter(_ORDER)  # used up as headings come: one out of order is not found in the rest
    for start, end in zip(starts, [*starts[1:], len(lines)], strict=True):
        heading = lines[start].removeprefix("## ")
        if lines[start] == heading or heading not in _ORDER:
            raise BadPage(f"{name}:{start + 1}: the heading {lines[start]!r} is not known")
        if heading not in expected:
            raise BadPage(f"{name}:{start + 1}: the section {heading!r} is out of order or twice")
        found[heading] = _Section(heading, start + 1, lines[start + 1 : end])
    return found


def _prose(section: _Section, name: str) -> str:
    for place, line in enumerate(section.lines, start=section.start + 1):
        if line.startswith(_FENCE):
            raise BadPage(f"{name}:{place}: a fenced block in {section.heading!r}, which is text")
    text = "\n".join(section.lines).strip()
    if not text:
        raise BadPage(f"{name}:{section.start}: the section {section.heading!r} is empty")
    return text


def _programs(section: _Section, name: str) -> tuple[str, ...]:
    found: list[str] = []
    program: list[str] | None = None  # None: between blocks
    begin = section.start
    for place, line in enumerate(section.lines, start=section.start + 1):
        if program is None and line == _BEGIN:
            program, begin = [], place
        elif program is not None and line == _FENCE:
            if not any(each.strip() for each in program):
                raise BadPage(f"{name}:{begin}: an empty block")
            found.append("\n".join([*program, ""]))
            program = None
        elif program is not None:
            if line.startswith(_FENCE):
                break
            program.append(line)
        elif line:
            raise BadPage(f"{name}:{place}: {line!r} is not in a block that begins {_BEGIN!r}")
    if program is not None:
        raise BadPage(f"{name}:{begin}: this block has no end")
    if not found:
        raise BadPage(f"{name}:{section.start}: the section {section.heading!r} has no program")
    if len(found) > 1 and section.heading not in _SEVERAL:
        raise BadPage(f"{name}:{section.start}: {section.heading!r} takes one program")
    return tuple(found)
