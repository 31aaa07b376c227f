"""Cases on disk: `antifreeze attach --save` writes them, `--case` reads them.

Nobody else may read one: it has the names of files, of functions and of hosts in it. And whoever
wrote the one that is read, it is bounded and checked like all that comes from others.
"""

from __future__ import annotations

import errno
import os
import stat
from pathlib import Path

from ..._linux.bounded_reads import file_bytes
from .facts import Case

MOST_BYTES = 1 << 25  # of a file; the largest of ours has 250 kB
PRIVATE = 0o600


def read_case(path: Path) -> Case:
    """Read a case. Raises OSError if there is no such file, ValueError if it is no case."""
    seen = path.stat()
    if not stat.S_ISREG(seen.st_mode):
        raise OSError(errno.EINVAL, "it is not a regular file")
    if seen.st_size > MOST_BYTES:
        raise OSError(errno.EFBIG, f"it is larger than {MOST_BYTES >> 20} MiB")
    data = file_bytes(os.fspath(path), MOST_BYTES)
    if data is None:
        raise OSError(errno.EACCES, os.strerror(errno.EACCES))
    return Case.from_json(data.decode())


def write_case(path: Path, case: Case) -> None:
    """Write a case to a file that nobody else may read. Raises OSError, also where somebody else
    has put a file of that name, or a link, for us to write through."""
    flags = os.O_WRONLY | os.O_CREAT | os.O_NONBLOCK | os.O_CLOEXEC
    if path.is_symlink() and path.lstat().st_uid != os.geteuid():
        raise PermissionError(errno.EPERM, "it is a link of another user's")
    file = os.open(path, flags, PRIVATE)
    with os.fdopen(file, "w", encoding="utf-8") as stream:
        seen = os.fstat(file)
        os.set_blocking(file, True)
        if stat.S_ISREG(seen.st_mode):  # else /dev/stdout, or a pipe
            if seen.st_uid != os.geteuid():
                raise PermissionError(errno.EPERM, "it belongs to another user")
            os.fchmod(file, PRIVATE)
            os.ftruncate(file, 0)
        stream.write(case.to_json() + "\n")
