"""The page of a cause, as it stands in the Markdown file beside it.

1. The first line is the title, `# ...`; what follows it says what happens, and why.
2. Then come the sections of `SECTIONS`, in this order, each with text. There is no other heading.
3. A section is one paragraph, whose lines are joined.
"""

from __future__ import annotations

from dataclasses import dataclass, fields
from pathlib import Path

# Headings and the fields that they fill.
SECTIONS = {
    "## How we can tell": "tell",
    "## To get out now": "get_out",
    "## To prevent it": "prevent",
}


@dataclass(frozen=True, slots=True)
class Page:
    """What a person reads about a cause."""

    title: str  # one line, as a person would say it
    what: str  # what happens, and why
    tell: str  # how we can tell it from outside
    get_out: str  # now, and whether work is lost
    prevent: str


class PageError(ValueError):
    """A page is not as it should be; the message begins with the file and the line."""


def read_page(path: Path) -> Page:
    """Return the page in a file. Raises PageError if it is not a whole one."""
    return parse_page(path.read_text(encoding="utf-8"), str(path))


def parse_page(text: str, file: str) -> Page:
    """Return the page that a text is. Raises PageError, with the file and the line, if it is not a
    whole one."""
    lines = text.split("\n")
    title = lines[0].removeprefix("# ").strip() if lines[0].startswith("# ") else ""
    if not title:
        raise PageError(f"{file}:1: the first line is no title, '# ...'")
    starts = {"what": 1}  # the line of each heading
    texts: dict[str, list[str]] = {"what": []}
    now = "what"
    for number, line in enumerate(lines[1:], start=2):
        if line.startswith("#"):
            now = _section(line, now, f"{file}:{number}")
            starts[now], texts[now] = number, []
        else:
            texts[now].append(line.rstrip())
    missing = [heading for heading, name in SECTIONS.items() if name not in texts]
    if missing:
        raise PageError(f"{file}:{len(lines)}: the section {missing[0]!r} is missing")
    for name, section in texts.items():
        _check(section, starts[name], file)
    joined = {name: " ".join(filter(None, section)) for name, section in texts.items()}
    return Page(title=title, **{each.name: joined[each.name] for each in fields(Page)[1:]})


def _section(heading: str, before: str, place: str) -> str:
    """Return the field that a heading fills, if it is the one that follows."""
    name = SECTIONS.get(heading)
    if name is None:
        raise PageError(f"{place}: the heading {heading!r} is unknown")
    order = ["what", *SECTIONS.values()]
    if order.index(name) != order.index(before) + 1:
        raise PageError(f"{place}: the section {heading!r} is not in its place")
    return name


def _check(section: list[str], start: int, file: str) -> None:
    """Raise PageError unless the lines below a heading are one paragraph."""
    filled = [number for number, line in enumerate(section, start=start + 1) if line]
    if not filled:
        raise PageError(f"{file}:{start}: there is no text below this heading")
    if filled[-1] - filled[0] + 1 != len(filled):
        gap = next(at for at in range(filled[0], filled[-1]) if at not in filled)
        raise PageError(f"{file}:{gap}: the text of a section is one paragraph")
