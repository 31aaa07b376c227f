"""Cases on disk: `antifreeze attach --save` writes them, `--case` reads them.

Nobody else may read one: it has the names of files, of functions and of hosts in it. And whoever
wrote the one that is read, it is bounded and checked like all that comes from others.
"""

from __future__ import annotations

import errno
import os
import stat
import sys
from pathlib import Path

from ..._linux.bounded_reads import file_bytes
from .facts import Case

MOST_BYTES = 1 << 25  # of a file; the largest of ours has 250 kB
PRIVATE = 0o600
_STREAMS = ("/dev/stdout", "/dev/stderr")


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
    """Write a case to a file that nobody else may read. Raises OSError, also for what somebody else
    has put there for us to write to: a link, a pipe, a file of theirs."""
    text = case.to_json() + "\n"
    if str(path) in _STREAMS:
        print(text, end="", file=sys.stdout if str(path) == _STREAMS[0] else sys.stderr)
        return
    flags = os.O_WRONLY | os.O_CREAT | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
    try:
        file = os.open(path, flags, PRIVATE)
    except OSError as error:
        if error.errno == errno.ELOOP:
            raise OSError(errno.ELOOP, "it is a symbolic link: name the file itself") from None
        raise
    with os.fdopen(file, "w", encoding="utf-8") as stream:
        seen = os.fstat(file)
        if not stat.S_ISREG(seen.st_mode):
            raise OSError(errno.EINVAL, "it is not a regular file")
        if seen.st_uid not in (os.geteuid(), _caller()):
            raise PermissionError(errno.EPERM, "it belongs to another user")
        os.fchmod(file, PRIVATE)
        os.ftruncate(file, 0)
        stream.write(text)


def _caller() -> int:
    """Return who has called us by `sudo`; who that is, is root's to say."""
    caller = os.environ.get("SUDO_UID", "") if os.geteuid() == 0 else ""
    return int(caller) if caller.isascii() and caller.isdigit() else os.geteuid()
