"""Open regular files and nothing else: to open a pipe waits for its writer, a device may act."""

from __future__ import annotations

import os
import stat

_LOOK = os.O_PATH | os.O_CLOEXEC
_READ = os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC
_LINKS = "/proc/self/fd/"


class NotRegular(OSError):
    """A folder, a link, a pipe, a socket, a device; or no longer what it was."""


def open_regular(path: str | os.PathLike[str], *, follow: bool = False) -> int:
    """Return a descriptor for reading. Raise OSError if there is none, NotRegular if it is not a
    regular file. Links are followed only if `follow`: then the caller knows where they lead."""
    look = os.open(path, _LOOK | (0 if follow else os.O_NOFOLLOW))
    try:
        _require_regular(look)
        return os.open(f"{_LINKS}{look}", _READ)
    finally:
        os.close(look)


def open_real(path: str) -> int:
    """Return a descriptor for reading the file at a path without links. Raise NotRegular if a link
    was put on the way since the path was resolved."""
    look = os.open(path, _LOOK | os.O_NOFOLLOW)
    try:
        _require_regular(look)
        if place_of(look) != path:
            raise NotRegular("it was replaced while it was being read")
        return os.open(f"{_LINKS}{look}", _READ)
    finally:
        os.close(look)


def open_real_folder(path: str) -> int:
    """Return a descriptor of the folder at a path without links, to make and replace files in."""
    look = os.open(path, _LOOK | os.O_NOFOLLOW | os.O_DIRECTORY)
    if place_of(look) != path:
        os.close(look)
        raise NotRegular("its folder was replaced while it was being read")
    return look


def place_of(descriptor: int) -> str:
    """Return where an open file is, as the kernel has it."""
    return os.readlink(f"{_LINKS}{descriptor}")


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


def _require_regular(descriptor: int) -> None:
    if not stat.S_ISREG(os.fstat(descriptor).st_mode):
        raise NotRegular("this is no regular file")
