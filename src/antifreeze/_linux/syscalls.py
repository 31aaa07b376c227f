"""System calls that a thread may be in, by name, and the kernel's `syscall` file. Pure.

The kernel tells their numbers, and these are others on other processors: all that we keep has those
of x86-64, whatever machine it comes from.
"""

from __future__ import annotations

import contextlib
import re
from enum import IntEnum

from . import procfs


class Syscall(IntEnum):
    """The calls in which threads wait, with their numbers on x86-64."""

    READ = 0
    WRITE = 1
    OPEN = 2
    POLL = 7
    PREAD = 17
    PWRITE = 18
    READV = 19
    WRITEV = 20
    SELECT = 23
    SCHED_YIELD = 24
    NANOSLEEP = 35
    CONNECT = 42
    ACCEPT = 43
    SENDTO = 44
    RECVFROM = 45
    SENDMSG = 46
    RECVMSG = 47
    WAIT4 = 61
    FCNTL = 72
    FLOCK = 73
    FSYNC = 74
    SIGTIMEDWAIT = 128
    FUTEX = 202
    RESTARTED = 219  # a wait that py-spy has interrupted goes on as this
    SEMTIMEDOP = 220
    CLOCK_NANOSLEEP = 230
    EPOLL_WAIT = 232
    WAITID = 247
    OPENAT = 257
    PSELECT = 270
    PPOLL = 271
    EPOLL_PWAIT = 281
    ACCEPT4 = 288
    PREADV = 295
    PWRITEV = 296
    OPENAT2 = 437


POLLS = frozenset(
    {
        Syscall.POLL,
        Syscall.SELECT,
        Syscall.EPOLL_WAIT,
        Syscall.PSELECT,
        Syscall.PPOLL,
        Syscall.EPOLL_PWAIT,
    }
)
OPENS = frozenset({Syscall.OPEN, Syscall.OPENAT, Syscall.OPENAT2})
READS = frozenset({Syscall.READ, Syscall.PREAD, Syscall.READV, Syscall.PREADV})
WRITES = frozenset({Syscall.WRITE, Syscall.PWRITE, Syscall.WRITEV, Syscall.PWRITEV})
SLEEPS = frozenset({Syscall.NANOSLEEP, Syscall.CLOCK_NANOSLEEP})
# Their first argument is a descriptor.
READ_OR_WRITE = (
    READS
    | WRITES
    | {
        Syscall.CONNECT,
        Syscall.ACCEPT,
        Syscall.ACCEPT4,
        Syscall.SENDTO,
        Syscall.RECVFROM,
        Syscall.SENDMSG,
        Syscall.RECVMSG,
        Syscall.FLOCK,
    }
)

# The numbers of 64-bit ARM (include/uapi/asm-generic/unistd.h), which has no older forms of some.
_ON_ARM = {
    22: Syscall.EPOLL_PWAIT,
    25: Syscall.FCNTL,
    32: Syscall.FLOCK,
    56: Syscall.OPENAT,
    63: Syscall.READ,
    64: Syscall.WRITE,
    65: Syscall.READV,
    66: Syscall.WRITEV,
    67: Syscall.PREAD,
    68: Syscall.PWRITE,
    69: Syscall.PREADV,
    70: Syscall.PWRITEV,
    72: Syscall.PSELECT,
    73: Syscall.PPOLL,
    82: Syscall.FSYNC,
    95: Syscall.WAITID,
    98: Syscall.FUTEX,
    101: Syscall.NANOSLEEP,
    115: Syscall.CLOCK_NANOSLEEP,
    124: Syscall.SCHED_YIELD,
    128: Syscall.RESTARTED,
    137: Syscall.SIGTIMEDWAIT,
    192: Syscall.SEMTIMEDOP,
    202: Syscall.ACCEPT,
    203: Syscall.CONNECT,
    206: Syscall.SENDTO,
    207: Syscall.RECVFROM,
    211: Syscall.SENDMSG,
    212: Syscall.RECVMSG,
    242: Syscall.ACCEPT4,
    260: Syscall.WAIT4,
    437: Syscall.OPENAT2,
}
# The kernel's line: the number, six arguments, where stack and code are.
_LINE = re.compile(r"\d{1,4}(?: 0x[0-9a-f]{1,16}){8}", re.ASCII)


def parse(text: str, machine: str) -> tuple[int, ...]:
    """Parse a thread's `syscall` file: the number of the call as on x86-64, and its arguments.

    Nothing while none is under way, if it is none of those above and the numbers are others here,
    and on processors whose numbers are not known: 73 is flock on one and ppoll on another.
    """
    parts = text.split()
    if not _LINE.fullmatch(" ".join(parts)):
        return ()
    number: int | None = int(parts[0])
    if machine != "x86_64":
        number = _ON_ARM.get(int(parts[0])) if machine in ("aarch64", "arm64") else None
    if number is None:
        return ()
    return (int(number), *(int(each, 16) for each in parts[1:7]))


def code_address(text: str) -> int:
    """Parse a thread's `syscall` file: where the code is that made the call; 0 while none is under
    way."""
    parts = text.split()
    return procfs.hexadecimal(parts[-1]) if _LINE.fullmatch(" ".join(parts)) else 0


def name(number: int) -> str:
    """Return the name of a call by its number on x86-64, as its manual page has it."""
    with contextlib.suppress(ValueError):
        return Syscall(number).name.lower()
    return f"system call {number}"
