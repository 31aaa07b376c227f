"""Read which files git tracks from its index: versions 2, 3 and 4.

A hostile index must neither name a file elsewhere nor cost more than its bytes: names with `..`,
absolute ones and those in `.git` are left out, and one that does not hold together is no index.
"""

from __future__ import annotations

import bisect
import os

from ...._linux.regular_files import read_regular

MOST_INDEX_BYTES = 64_000_000  # bytes; Chromium's index, of 500,000 files, has about as many
MOST_NAME_BYTES = 64_000_000  # bytes of all names together: version 4 shares their beginnings
_HEADER = 12
_TIMES = 40  # bytes of an entry before the object's name
_HASHES = (20, 32)  # bytes of an object's name: SHA-1, SHA-256
_EXTENDED = 0x4000
_GITLINK = 0o160000  # a commit of another repository: a submodule
_KINDS = (0o100000, 0o120000, _GITLINK)  # files and links; a folder is one of a sparse index
_MODE = 24  # where an entry has its mode


class Index:
    """The names that an index has, as bytes held in Latin-1."""

    def __init__(self, files: set[str] | None = None, modules: set[str] | None = None) -> None:
        self.files = files or set()
        self.modules = modules or set()  # folders of submodules
        self._sorted: list[str] | None = None

    def __repr__(self) -> str:
        return f"Index({len(self.files)} files, {len(self.modules)} submodules)"

    def has_below(self, folder: str) -> bool:
        """Whether a file in a folder is tracked."""
        if self._sorted is None:
            self._sorted = sorted(self.files)
        place = bisect.bisect_left(self._sorted, f"{folder}/")
        return place < len(self._sorted) and self._sorted[place].startswith(f"{folder}/")


def read_index(git_folder: str) -> Index:
    """Read the index of a repository; an empty one if there is none that holds together."""
    data = read_regular(os.path.join(git_folder, "index"), MOST_INDEX_BYTES + 1)
    if data is None or len(data) > MOST_INDEX_BYTES:
        return Index()
    for size in _HASHES:  # only the repository's settings say which: nobody asks them
        found = _parse(data, size)
        if found is not None:
            return found
    return Index()


def _parse(data: bytes, hash_size: int) -> Index | None:
    version, count = int.from_bytes(data[4:8], "big"), int.from_bytes(data[8:_HEADER], "big")
    if data[:4] != b"DIRC" or version not in (2, 3, 4):
        return None
    files: set[str] = set()
    modules: set[str] = set()
    place, name, expanded = _HEADER, b"", 0
    fixed = _TIMES + hash_size + 2
    for _ in range(count):
        start = place
        flags = int.from_bytes(data[start + fixed - 2 : start + fixed], "big")
        place = start + fixed + (2 if flags & _EXTENDED and version > 2 else 0)
        cut = 0
        if version == 4:
            cut, place = _number(data, place)
        end = data.find(b"\0", place)
        mode = int.from_bytes(data[start + _MODE : start + _MODE + 4], "big")
        if end < 0 or cut > len(name) or mode & 0o170000 not in (*_KINDS, 0o40000):
            return None
        if version == 4:
            name = name[: len(name) - cut] + data[place:end]
            place = end + 1
        else:
            name = data[place:end]
            place = start + (end - start + 8) // 8 * 8
        expanded += len(name)
        if expanded > MOST_NAME_BYTES:
            return None
        if mode & 0o170000 in _KINDS and _is_harmless(name):
            (modules if mode & 0o170000 == _GITLINK else files).add(name.decode("latin-1"))
    return Index(files, modules) if place + hash_size <= len(data) else None


def _number(data: bytes, place: int) -> tuple[int, int]:
    """Return a number of variable length, and the place behind it."""
    value = 0
    for many in range(8):  # longer ones are no length of a name
        byte = data[place + many] if place + many < len(data) else 0
        value = (value << 7) | (byte & 0x7F)
        if not byte & 0x80:
            return value, place + many + 1
        value += 1
    return value, len(data)


def _is_harmless(name: bytes) -> bool:
    """Whether a name is of a file in the work tree."""
    if b"/." not in name and not name.startswith((b".", b"/")):
        return bool(name) and b"//" not in name and not name.endswith(b"/")
    return all(each not in (b"", b".", b"..", b".git") for each in name.split(b"/"))
