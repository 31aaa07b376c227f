"""Files that a dataset opened before the fork: an offset of one's own for each worker.

A forked process shares the position of every open file with its parent and its siblings. Two that
read and seek in it get each other's bytes, without any error.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import stat

_ACCESS = os.O_ACCMODE | os.O_PATH


def own_offsets() -> None:
    """Give this process its own position in every regular file that is open for reading only.

    Files open for writing stay shared, as people expect of a log. What cannot be opened anew (by
    a process that gave up its rights meanwhile) stays as it was.
    """
    for name in os.listdir("/proc/self/fd"):
        with contextlib.suppress(OSError):
            _reopen(int(name))


def _reopen(number: int) -> None:
    flags = fcntl.fcntl(number, fcntl.F_GETFL)
    if flags & _ACCESS != os.O_RDONLY or not stat.S_ISREG(os.fstat(number).st_mode):
        return
    own = os.open(f"/proc/self/fd/{number}", (flags & ~os.O_CREAT) | os.O_CLOEXEC)
    try:
        os.lseek(own, os.lseek(number, 0, os.SEEK_CUR), os.SEEK_SET)
        os.dup2(own, number, inheritable=os.get_inheritable(number))
    finally:
        os.close(own)
