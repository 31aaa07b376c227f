"""Open regular files and nothing else: to open a pipe waits for its writer, a device may act.

What is opened is what was looked at: a first descriptor (`O_PATH`) opens nothing, and a second one
is made from it. Where there is no `O_PATH` or no /proc, the file is looked at by name before and
after, and refused if it is another one by then.
"""

from __future__ import annotations

import functools
import os
import stat

from .open_descriptors import OWN_DESCRIPTORS, own_path, own_target

_READ = os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC | os.O_NOCTTY
_PATH: int = getattr(os, "O_PATH", 0)


class NotRegular(OSError):
    """A folder, a link, a pipe, a socket, a device; or no longer what it was."""


def open_regular(path: str | os.PathLike[str], *, follow: bool = False) -> int:
    """Return a descriptor for reading. Raise OSError if there is none, NotRegular if it is not a
    regular file. Links are followed only if `follow`: then the caller knows where they lead."""
    no_link = 0 if follow else os.O_NOFOLLOW
    if not _has_descriptors():
        return _opened_by_name(path, follow=follow)
    look = os.open(path, _PATH | os.O_CLOEXEC | no_link)
    try:
        _require_regular(os.fstat(look))
        return os.open(own_path(look), _READ)
    finally:
        os.close(look)


def open_real(path: str) -> int:
    """Return a descriptor for reading the file at a path without links. Raise NotRegular if a link
    was put on the way since the path was resolved."""
    found = open_regular(path)
    if place_of(found, path) != path:
        os.close(found)
        raise NotRegular("it was replaced while it was being read")
    return found


def open_real_folder(path: str) -> int:
    """Return a descriptor of the folder at a path without links, to make and replace files in."""
    found = os.open(path, (_PATH or os.O_RDONLY) | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_DIRECTORY)
    if place_of(found, path) != path:
        os.close(found)
        raise NotRegular("its folder was replaced while it was being read")
    return found


def place_of(descriptor: int, path: str) -> str:
    """Return where an open file is: as the kernel has it, or else where its name leads now."""
    if _has_descriptors():
        return own_target(descriptor)
    return os.path.realpath(path)


def read_regular(path: str | os.PathLike[str], most: int, *, follow: bool = False) -> bytes | None:
    """Return at most so many bytes of a regular file; None if there is none."""
    try:
        descriptor = open_regular(path, follow=follow)
    except (OSError, ValueError):  # ValueError: a NUL in the name
        return None
    try:
        with open(descriptor, "rb") as file:
            return file.read(most)
    except OSError:
        return None


@functools.cache
def _has_descriptors() -> bool:
    return bool(_PATH) and os.path.isdir(OWN_DESCRIPTORS)


def _opened_by_name(path: str | os.PathLike[str], *, follow: bool) -> int:
    before = os.stat(path, follow_symlinks=follow)
    _require_regular(before)
    found = os.open(path, _READ | (0 if follow else os.O_NOFOLLOW))
    if not os.path.samestat(before, os.fstat(found)):
        os.close(found)
        raise NotRegular("it was replaced while it was being read")
    return found


def _require_regular(seen: os.stat_result) -> None:
    if not stat.S_ISREG(seen.st_mode):
        raise NotRegular("it is not a regular file")
