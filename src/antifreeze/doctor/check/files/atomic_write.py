"""Replace the content of a file as a whole: never half of it."""

from __future__ import annotations

import contextlib
import os
import secrets
import stat
from collections.abc import Sequence
from pathlib import Path

from ...._linux.regular_files import NotRegular, open_real_folder
from .symlinks import resolve

_NEW = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC


def replace_file(path: Path, data: bytes, named: Sequence[Path] = ()) -> None:
    """Write a file anew: beside the real one, behind all links, and then in its place. Its mode
    stays, and so does its owner where we may choose one. Raise OSError, and leave the old content
    whole, if anything goes wrong; LinkLeadsOut if a link leads where it may not."""
    folder, name = os.path.split(resolve(path, named))
    place = open_real_folder(folder)
    try:
        old = os.stat(name, dir_fd=place, follow_symlinks=False)
        if not stat.S_ISREG(old.st_mode):
            raise NotRegular("it is not a regular file")
        if not os.access(name, os.W_OK, dir_fd=place):
            raise PermissionError(13, "it may not be written", str(path))
        beside = f".{name[:100]}.{secrets.token_hex(8)}.antifreeze"
        try:
            _write(beside, data, old, place)
            os.replace(beside, name, src_dir_fd=place, dst_dir_fd=place)
        except BaseException:
            with contextlib.suppress(OSError):
                os.unlink(beside, dir_fd=place)
            raise
    finally:
        os.close(place)


def _write(name: str, data: bytes, like: os.stat_result, place: int) -> None:
    descriptor = os.open(name, _NEW, 0o600, dir_fd=place)
    with open(descriptor, "wb") as file:
        if (like.st_uid, like.st_gid) != (os.geteuid(), os.getegid()):
            with contextlib.suppress(OSError):  # only root may choose
                os.fchown(descriptor, like.st_uid, like.st_gid)
        os.fchmod(descriptor, stat.S_IMODE(like.st_mode))
        file.write(data)
