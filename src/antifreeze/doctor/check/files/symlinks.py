"""Follow symbolic links, but not out of the project that they lie in.

A repository of others may hold a link to a file that only its reader can read; what stands there
would be shown in a log, and `--fix` would write to it.

1. A project is the nearest folder above with `.git` or `.hg`; without one, with pyproject.toml. So
   the packages of one repository may link to each other.
2. A link in a project leads to somewhere inside it, by whatever ways.
3. A link in no project is the user's own if it is on the way to a path that was named, and is
   followed. One that is found further inside leads to somewhere inside that path.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path

from ...pyproject import FILE, MARKERS

MARKS = (MARKERS, (FILE,))  # the second only where none of the first is found


class LinkLeadsOut(OSError):
    """A link leads out of the project, or out of the folder that was named."""


def resolve(path: Path, named: Sequence[Path] = ()) -> str:
    """Return where a path really is.

    `named`: what the command line names; a path below none of them is named itself. Raise
    LinkLeadsOut if a link on the way leads where it may not.
    """
    top = next((each for each in named if each == path or each in path.parents), path)
    real = _follow("/", Path(os.path.join(os.getcwd(), top)).parts[1:], inside=None)
    below = path.parts[len(top.parts) :]
    return _follow(real, below, inside=real) if below else real


def _follow(here: str, parts: Sequence[str], inside: str | None) -> str:
    """Follow parts of a path, one by one, from a folder without links."""
    for part in parts:
        if part == "..":
            here = os.path.dirname(here)
            continue
        step = os.path.join(here, part)
        if os.path.islink(step):
            step = follow_link(here, step, inside)
        here = step
    return here


def follow_link(here: str, link: str, inside: str | None) -> str:
    """Return where a link leads that lies in a folder without links. Raise LinkLeadsOut."""
    target = os.path.realpath(link)
    project = project_of(here)
    limit = project or inside
    if limit is not None and not is_inside(target, limit):
        what = "project" if project is not None else "folder"
        raise LinkLeadsOut(f"it leads out of the {what} {limit}")
    return target


def project_of(folder: str) -> str | None:
    """Return the project that a folder, given without links, belongs to; None if it has none."""
    places = [folder, *map(str, Path(folder).parents)]
    for marks in MARKS:
        for place in places:
            if any(os.path.lexists(os.path.join(place, each)) for each in marks):
                return place
    return None


def is_inside(path: str, folder: str) -> bool:
    return path == folder or path.startswith(folder.rstrip("/") + "/")
