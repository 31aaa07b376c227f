"""Find the files that an index names: their folders may be links, to each other or elsewhere.

Each folder is asked for once, and each link costs a lookup of which there are only so many: an
index may name thousands of files behind forty links each.
"""

from __future__ import annotations

import os
import stat
from dataclasses import dataclass, field
from pathlib import Path

from .symlinks import LinkLeadsOut, follow_link, resolve

MOST_LINKS = 5_000  # followed for a folder that was named; about a second
MOST_LINKS_PER_PATH = 40  # as many as Linux follows in one path
LONGEST_PATH_BYTES = 4_096  # bytes of a path that Linux takes


@dataclass(slots=True)
class _Entry:
    """A name on the way to files: where it is, behind all links."""

    real: str | None  # None: it is not there
    links: int = 0  # that were followed on the way
    leads_out: bool = False
    below: dict[str, _Entry] = field(default_factory=dict)


class TrackedFiles:
    """Looks for names of an index. `left_out`: how many were not looked for any more."""

    def __init__(self, named: Path) -> None:
        self.left_out = 0
        self._named = named
        self._inside = ""  # where that folder really is, if it was asked for
        self._links_left = MOST_LINKS
        self._tops: dict[str, _Entry] = {}

    def __repr__(self) -> str:
        return f"TrackedFiles({str(self._named)!r}, {self._links_left:,} links left)"

    def is_file(self, folder: str, name: str) -> bool:
        """Whether a name is one of a regular file. Raise LinkLeadsOut if that is elsewhere."""
        if len(name) > LONGEST_PATH_BYTES:
            return False
        if folder not in self._tops:
            self._tops[folder] = _Entry(resolve(Path(folder), (self._named,)))
            self._inside = self._inside or os.path.realpath(self._named)
        entry = self._tops[folder]
        for part in name.split("/"):
            found = entry.below.get(part)
            if found is None:
                found = self._step(entry, part)
                if found is None:
                    self.left_out += 1
                    return False
                entry.below[part] = found
            entry = found
            if entry.leads_out:
                raise LinkLeadsOut("it leads out")
            if entry.real is None:
                return False
        return entry.real is not None and os.path.isfile(entry.real)

    def _step(self, entry: _Entry, part: str) -> _Entry | None:
        """Look for one name in a folder; None if there were too many links already."""
        assert entry.real is not None
        path = os.path.join(entry.real, part)
        try:
            mode = os.lstat(path).st_mode
        except (OSError, ValueError):
            return _Entry(None)
        if not stat.S_ISLNK(mode):
            return _Entry(path, entry.links)
        if entry.links >= MOST_LINKS_PER_PATH:
            return _Entry(None)
        if not self._links_left:
            return None
        self._links_left -= 1
        try:
            target = follow_link(entry.real, path, self._inside)
        except LinkLeadsOut:  # a dead link leads nowhere
            return _Entry(path, leads_out=True) if os.path.exists(path) else _Entry(None)
        return _Entry(target, entry.links + 1)
