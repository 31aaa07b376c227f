"""System calls that a thread may be in, by name. The kernel tells their numbers, and these are
others on other processors: a case has those of x86-64, whatever machine it comes from."""

from __future__ import annotations

import re
from enum import IntEnum


class Call(IntEnum):
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
    FUTEX = 202
    RESTARTED = 219  # a wait that py-spy has interrupted goes on as this
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
    {Call.POLL, Call.SELECT, Call.EPOLL_WAIT, Call.PSELECT, Call.PPOLL, Call.EPOLL_PWAIT}
)
OPENS = frozenset({Call.OPEN, Call.OPENAT, Call.OPENAT2})
READS = frozenset({Call.READ, Call.PREAD, Call.READV, Call.PREADV})
WRITES = frozenset({Call.WRITE, Call.PWRITE, Call.WRITEV, Call.PWRITEV})
SLEEPS = frozenset({Call.NANOSLEEP, Call.CLOCK_NANOSLEEP})
# Their first argument is a descriptor.
READ_OR_WRITE = (
    READS
    | WRITES
    | {
        Call.CONNECT,
        Call.ACCEPT,
        Call.ACCEPT4,
        Call.SENDTO,
        Call.RECVFROM,
        Call.SENDMSG,
        Call.RECVMSG,
        Call.FLOCK,
    }
)

# The numbers of 64-bit ARM (include/uapi/asm-generic/unistd.h), which has no older forms of some.
_ON_ARM = {
    22: Call.EPOLL_PWAIT,
    25: Call.FCNTL,
    32: Call.FLOCK,
    56: Call.OPENAT,
    63: Call.READ,
    64: Call.WRITE,
    65: Call.READV,
    66: Call.WRITEV,
    67: Call.PREAD,
    68: Call.PWRITE,
    69: Call.PREADV,
    70: Call.PWRITEV,
    72: Call.PSELECT,
    73: Call.PPOLL,
    95: Call.WAITID,
    98: Call.FUTEX,
    101: Call.NANOSLEEP,
    115: Call.CLOCK_NANOSLEEP,
    128: Call.RESTARTED,
    202: Call.ACCEPT,
    203: Call.CONNECT,
    206: Call.SENDTO,
    207: Call.RECVFROM,
    211: Call.SENDMSG,
    212: Call.RECVMSG,
    242: Call.ACCEPT4,
    260: Call.WAIT4,
    437: Call.OPENAT2,
}
# The kernel's line: the number, six arguments, where stack and code are.
_LINE = re.compile(r"\d{1,4}(?: 0x[0-9a-f]{1,16}){8}", re.ASCII)


def parse(text: str, machine: str) -> tuple[int, ...]:
    """Read a thread's `syscall` file: the number of the call as on x86-64, and its arguments.

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
