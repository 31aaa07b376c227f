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


def positions() -> dict[int, int]:
    """Give the position in every regular file that is open for reading only, by descriptor."""
    found: dict[int, int] = {}
    for name in os.listdir("/proc/self/fd"):
        number = int(name)
        with contextlib.suppress(OSError):
            flags = fcntl.fcntl(number, fcntl.F_GETFL)
            if flags & _ACCESS == os.O_RDONLY and stat.S_ISREG(os.fstat(number).st_mode):
                found[number] = os.lseek(number, 0, os.SEEK_CUR)
    return found


def own_offsets(at: dict[int, int]) -> None:
    """Give this process its own position in these files.

    They must have been taken before the fork, where somebody may read on after it. Files open for
    writing are not among them: they stay shared, as people expect of a log. What cannot be opened
    anew (by a process that gave up its rights meanwhile) stays as it was.
    """
    for number, position in at.items():
        with contextlib.suppress(OSError):
            _reopen(number, position)


def _reopen(number: int, position: int) -> None:
    flags = fcntl.fcntl(number, fcntl.F_GETFL)
    own = os.open(f"/proc/self/fd/{number}", (flags & ~os.O_CREAT) | os.O_CLOEXEC)
    try:
        os.lseek(own, position, os.SEEK_SET)
        os.dup2(own, number, inheritable=os.get_inheritable(number))
    finally:
        os.close(own)
