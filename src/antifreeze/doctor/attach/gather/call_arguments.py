"""What the arguments of a system call point at, in the memory of the process that made it.

No more is read than what the program has handed to the kernel: until when it sleeps, the path that
it opens, the descriptors that it waits for.
"""

from __future__ import annotations

import struct

from ...._linux import procfs
from ...._linux.bounded_reads import proc_memory, proc_text
from ...._linux.clock import monotonic
from ...._linux.syscalls import OPENS, Syscall

# Of a sleep: the clock that is ours too, and the flag for a point in time.
_MONOTONIC, _UNTIL = 1, 1
_TIME = struct.Struct("<2q")
_LONGEST = 4096  # bytes of a path, as the kernel allows (PATH_MAX)
_POLLED = struct.Struct("<ihh")  # a descriptor, and for what it is waited
_MOST_WATCHED = 64  # descriptors: a server has thousands, and then it is none of ours


def sleeps_s(pid: int, call: tuple[int, ...]) -> float:
    """Return the seconds that a thread has still to sleep, if it sleeps until a given time, as
    Python's `time.sleep` does; 0 if it does not."""
    if len(call) < 4 or call[:3] != (Syscall.CLOCK_NANOSLEEP, _MONOTONIC, _UNTIL):
        return 0.0
    found = proc_memory(pid, _TIME.size, call[3])
    if len(found) != _TIME.size:
        return 0.0
    whole, parts = _TIME.unpack(found)
    left: float = whole + parts / 1e9 - monotonic()
    return max(0.0, left)


def opens(pid: int, call: tuple[int, ...]) -> str:
    """Return the path that a thread is about to open; nothing if it opens none, or if what is there
    does not look like one."""
    if len(call) < 3 or call[0] not in OPENS:
        return ""
    place = call[1] if call[0] == Syscall.OPEN else call[2]
    path, end, _ = proc_memory(pid, _LONGEST, place).partition(b"\0")
    text = path.decode(errors="replace")
    return text if end and text.isprintable() and "\ufffd" not in text else ""


def watches(pid: int, call: tuple[int, ...], waits_in: str) -> tuple[int, ...]:
    """Return the descriptors that a thread waits for in `poll` or `epoll_wait`; nothing if they are
    not known. `waits_in`: the kernel's function, since a `poll` that was interrupted goes on under
    another name."""
    if len(call) < 3:
        return ()
    if call[0] in (Syscall.EPOLL_WAIT, Syscall.EPOLL_PWAIT):
        found = procfs.watched_descriptors(proc_text(pid, "fdinfo", str(call[1])))
        return tuple(found) if len(found) <= _MOST_WATCHED else ()
    goes_on = call[0] == Syscall.RESTARTED and "poll_schedule" in waits_in
    if (
        not (call[0] in (Syscall.POLL, Syscall.PPOLL) or goes_on)
        or not 0 < call[2] <= _MOST_WATCHED
    ):
        return ()
    size = call[2] * _POLLED.size
    table = proc_memory(pid, size, call[1])
    if len(table) != size:
        return ()
    return tuple(number for number, _, _ in _POLLED.iter_unpack(table) if number >= 0)
