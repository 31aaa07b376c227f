"""What /proc shows of the program's own processes and threads at this moment.

Everything here may be forbidden, or gone between two lines: then it is empty, 0 or None. For
processes of other programs and users there is `bounded_reads`. A thread is named by its place
below /proc: "17/task/18".
"""

from __future__ import annotations

import contextlib
import os
import re
from collections.abc import Iterator
from pathlib import Path

from .._core.limits import LIMITS
from . import procfs, syscalls

TICK_S = 1.0 / os.sysconf("SC_CLK_TCK")

_IO = re.compile(r"^(?:rchar|wchar|read_bytes): (\d+)$", re.MULTILINE)
_CAUGHT = re.compile(r"^SigCgt:\s+([0-9a-f]+)$", re.MULTILINE)
_WATCHED = re.compile(r"^tfd:\s+(\d+)", re.MULTILINE)


def read(path: str) -> str:
    with contextlib.suppress(OSError):
        return Path(path).read_text(errors="replace")
    return ""


def threads(pid: int) -> list[str]:
    """Return the threads of a process."""
    try:
        return os.listdir(f"/proc/{pid}/task")
    except OSError:
        return []


def children(pid: int, thread: str) -> list[int]:
    """Return the processes that a thread has started."""
    return [int(child) for child in read(f"/proc/{pid}/task/{thread}/children").split()]


def with_descendants(pid: int) -> list[int]:
    """Return a process, those it has started, and so on."""
    found = [pid]
    for each in found:
        if len(found) >= LIMITS.searches.child_processes:
            break
        for thread in threads(each):
            found += children(each, thread)
    return found[: LIMITS.searches.child_processes]


def stat_fields(process: str) -> list[str]:
    """Return the fields of `stat`, from the state on; the name before them may hold anything."""
    return read(f"/proc/{process}/stat").rpartition(")")[2].split()


def state(process: str) -> str:
    return next(iter(stat_fields(process)), "")


def ran_s(thread: str) -> float:
    """Return how long a thread has run: to the nanosecond, or in ticks if the kernel counts no
    better."""
    if finely := read(f"/proc/{thread}/schedstat").split():
        return int(finely[0]) / 1e9
    return TICK_S * sum(map(int, stat_fields(thread)[11:13]))


def thread_name(pid: int, thread: str) -> str:
    return read(f"/proc/{pid}/task/{thread}/comm").strip()


def io_bytes(process: str) -> int:
    """Return what was read and written, also from the page cache."""
    return sum(map(int, _IO.findall(read(f"/proc/{process}/io"))))


def system_call(process: str) -> tuple[int, ...]:
    """Return the system call that a thread is in, by its number on x86-64, and its arguments."""
    return syscalls.parse(read(f"/proc/{process}/syscall"), os.uname().machine)


def caught_signals(pid: int) -> int | None:
    """Return the signals that a process has handlers for, as a bit mask; None if nobody knows."""
    found = _CAUGHT.search(read(f"/proc/{pid}/status"))
    return None if found is None else int(found[1], 16)


def watched_by_epoll(pid: int, number: int) -> list[int] | None:
    """Return the descriptors that an epoll instance watches; None if nobody knows."""
    watched = read(f"/proc/{pid}/fdinfo/{number}")
    return [int(each) for each in _WATCHED.findall(watched)] if watched else None


def memory(pid: int, address: int, size: int) -> bytes:
    """Read memory of a process. Raises OSError, ValueError or OverflowError if that cannot be."""
    with open(f"/proc/{pid}/mem", "rb", buffering=0) as file:
        file.seek(address)
        return file.read(size)


def descriptor_name(pid: int, number: int) -> str:
    """Name what a descriptor stands for: a path, or the peer of a socket."""
    try:
        name = os.readlink(f"/proc/{pid}/fd/{number}")
    except OSError:
        return f"descriptor {number}"
    if name.startswith("socket:["):
        return next(_peers(pid, name[8:-1]), "a socket")
    return "a pipe" if name.startswith("pipe:[") else name


def _peers(pid: int, inode: str) -> Iterator[str]:
    """Yield who is at the other end of a socket, if it is listed."""
    for table in ("tcp", "tcp6", "udp", "udp6"):
        for line in read(f"/proc/{pid}/net/{table}").splitlines()[1:]:
            fields = line.split()
            if len(fields) > 9 and fields[9] == inode:
                yield procfs.address(fields[2])
    for line in read(f"/proc/{pid}/net/unix").splitlines()[1:]:
        fields = line.split()
        if len(fields) > 7 and fields[6] == inode:
            yield f"the socket {fields[7]}"
