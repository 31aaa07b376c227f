"""What a dataset opened before the fork: files, an offset of one's own for each worker; and
conversations, which are taken from those who would share them.

A forked process shares the position of every open file with its parent and its siblings. Two that
read and seek in it get each other's bytes, without any error. So do two that speak on one socket or
pipe: it is better to have none.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import stat

from .._core.frozen_values import frozen
from .._core.limits import LIMITS
from .._linux.open_descriptors import own_descriptors, own_lock_kinds, own_path
from .private_lmdb_environments import Reopening

_ACCESS = os.O_ACCMODE | os.O_PATH
_KEPT = os.O_ACCMODE | os.O_APPEND | os.O_NONBLOCK | os.O_DIRECT | os.O_SYNC | os.O_NOATIME
_LOCKABLE = (stat.S_IFREG, stat.S_IFDIR, stat.S_IFBLK, stat.S_IFCHR)  # of what people lock
_OF_FILES = frozenset({"FLOCK", "OFDLCK"})  # locks that belong to an open file


@frozen
class Held:
    """What a dataset holds of open files that a worker is to deal with."""

    files: tuple[int, ...] = ()  # open for reading and writing
    taken: tuple[tuple[int, str], ...] = ()  # conversations, with their names
    encrypted: frozenset[int] = frozenset()  # those of them that are read by the module ssl
    environments: tuple[Reopening, ...] = ()  # of LMDB, that each worker opens anew


NOTHING = Held()


def positions(held: Held = NOTHING) -> dict[int, int]:
    """Give the position in every regular file that is open for reading only, and in those that the
    dataset itself holds, by descriptor."""
    found: dict[int, int] = {}
    for number in own_descriptors():
        with contextlib.suppress(OSError):
            flags = fcntl.fcntl(number, fcntl.F_GETFL)
            reads = flags & _ACCESS == os.O_RDONLY or number in held.files
            if reads and stat.S_ISREG(os.fstat(number).st_mode):
                found[number] = os.lseek(number, 0, os.SEEK_CUR)
    return found


def may_hold_locks(most_files: int = LIMITS.forking.files_looked_at) -> bool:
    """Whether this process holds a lock of an open file (`flock`, or `F_OFD_SETLK`).

    A fork of this process holds such a lock as well, until both have closed the file. Locks that
    belong to processes (`lockf`) are not inherited. Looking takes 10 us for each open file; with
    very many of them the answer is yes without a look.

    Not from /proc/locks, which would need one read: the kernel stops all users of file locks on
    the machine for it, which takes 6 to 25 ms unless somebody has just done the same.
    """
    numbers = own_descriptors()
    if len(numbers) > most_files:
        return True
    for number in numbers:
        with contextlib.suppress(OSError):  # closed meanwhile, or not told
            if stat.S_IFMT(os.fstat(number).st_mode) not in _LOCKABLE:
                continue
            if not _OF_FILES.isdisjoint(own_lock_kinds(number)):
                return True
    return False


def take_away(held: Held) -> None:
    """Put in the place of each conversation something that only ever fails: every call gives
    EBADF. (A closed one would read as an end, again and again; a closed number would soon be
    another file's.) An encrypted one reads zeros, which are an error of the protocol: to the module
    ssl, whatever else fails is an end as well, or no connection yet, for which it waits for ever.
    """
    if not held.taken:
        return
    nothing = os.open(os.devnull, os.O_PATH | os.O_CLOEXEC)
    zeros = os.open("/dev/zero", os.O_RDONLY | os.O_CLOEXEC)
    try:
        for number, _ in held.taken:
            with contextlib.suppress(OSError):
                os.fstat(number)  # it is open
                put = zeros if number in held.encrypted else nothing
                os.dup2(put, number, inheritable=False)
    finally:
        os.close(nothing)
        os.close(zeros)


def own_offsets(at: dict[int, int]) -> None:
    """Give this process its own position in these files.

    They must have been taken before the fork, where somebody may read on after it. Files open for
    writing are not among them: they stay shared, as people expect of a log, unless the dataset
    itself has one that it can read. What cannot be opened
    anew (by a process that gave up its rights meanwhile) stays as it was.
    """
    for number, position in at.items():
        with contextlib.suppress(OSError):
            _reopen(number, position)


def _reopen(number: int, position: int) -> None:
    flags = fcntl.fcntl(number, fcntl.F_GETFL)
    own = os.open(own_path(number), (flags & _KEPT) | os.O_CLOEXEC)
    try:
        os.lseek(own, position, os.SEEK_SET)
        os.dup2(own, number, inheritable=os.get_inheritable(number))
    finally:
        os.close(own)
