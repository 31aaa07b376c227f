"""What /proc shows of the program's own processes and threads at this moment.

Everything here may be forbidden, or gone between two lines: then it is empty, 0 or None. Only what
is asked of this process itself, whose name begins with `own_`, raises OSError instead: to go on
without it would be wrong. For processes of other programs and users there is `bounded_reads`. A
thread is named by its place below /proc: "17/task/18".
"""

from __future__ import annotations

import os
from collections.abc import Iterator

from .._core.limits import LIMITS
from . import procfs, syscalls
from .plain_reads import contents
from .plain_reads import text as read

TICK_S = 1.0 / os.sysconf("SC_CLK_TCK")
_PAGE = os.sysconf("SC_PAGE_SIZE")
_USUAL_UMASK = 0o022


def threads(pid: int) -> list[str]:
    """Return the threads of a process."""
    try:
        return os.listdir(f"/proc/{pid}/task")
    except OSError:
        return []


def own_threads() -> list[str]:
    """Return the threads of this process. Raise OSError if they cannot be listed."""
    return os.listdir("/proc/self/task")


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


def stat(process: str) -> procfs.Stat | None:
    """Return what `stat` says of a process or a thread; None if there is none."""
    return procfs.stat(read(f"/proc/{process}/stat"))


def state(process: str) -> str:
    """Return the kernel's letter for what a process or a thread does; nothing if there is none."""
    found = read(f"/proc/{process}/stat")
    return procfs.state(found) if found else ""


def ran_s(thread: str) -> float:
    """Return how long a thread has run: to the nanosecond, or in ticks if the kernel counts no
    better."""
    if finely := read(f"/proc/{thread}/schedstat").split():
        return int(finely[0]) / 1e9
    found = stat(thread)
    return TICK_S * found.cpu if found is not None else 0.0


def thread_name(pid: int, thread: str) -> str | None:
    """Return the name of a thread; None if it has ended."""
    found = read(f"/proc/{pid}/task/{thread}/comm")  # which ends with a newline, if it is there
    return found.removesuffix("\n") if found else None


def io_counts(process: str) -> dict[str, int]:
    """Return what a process or a thread has read and written: `rchar` and `wchar` count also what
    came from the page cache, `read_bytes` what came from a disk."""
    return procfs.counters(read(f"/proc/{process}/io"))


def io_bytes(process: str) -> int:
    """Return what was read and written, also from the page cache."""
    found = io_counts(process)
    return sum(found.get(name, 0) for name in ("rchar", "wchar", "read_bytes"))


def status(process: str) -> dict[str, str]:
    """Return what `status` says of a process or a thread."""
    return procfs.table(read(f"/proc/{process}/status"))


def private_bytes(pid: int) -> int:
    """Return how much memory a process has that is no file's and not shared, swapped out or not."""
    use = procfs.memory_use(status(f"{pid}"))
    return use.own + use.swapped


def own_resident_bytes() -> int:
    """Return how much memory of this process is present that is no file's and not shared. Raise
    OSError if that is not told."""
    found = _own_pages()
    return (found.resident - found.shared) * _PAGE


def own_mapped_bytes() -> int:
    """Return how large the address space of this process is. Raise OSError if that is not told."""
    return _own_pages().mapped * _PAGE


def _own_pages() -> procfs.Pages:
    if (found := procfs.pages(contents("/proc/self/statm").decode())) is None:
        raise OSError("/proc/self/statm is not as Linux writes it")
    return found


def own_umask() -> int:
    """Return the umask of this process. (`os.umask` sets it, for a moment, for all threads.) Raise
    OSError if that is not told."""
    found = procfs.table(contents("/proc/self/status").decode(errors="replace")).get("Umask")
    return int(found, 8) if found else _USUAL_UMASK


def voluntary_switches(pid: int, thread: str) -> int:
    """Return how often a thread has gone to sleep by itself, and so was woken."""
    return procfs.quantity(status(f"{pid}/task/{thread}"), "voluntary_ctxt_switches")


def system_call(process: str) -> tuple[int, ...]:
    """Return the system call that a thread is in, by its number on x86-64, and its arguments."""
    return syscalls.parse(read(f"/proc/{process}/syscall"), os.uname().machine)


def system_call_name(process: str) -> str:
    """Return the name of the system call that a thread is in, or "running"; nothing if that is not
    told."""
    told = read(f"/proc/{process}/syscall")
    if call := syscalls.parse(told, os.uname().machine):
        return syscalls.name(call[0])
    number = told.partition(" ")[0].strip()
    return f"system call {number}" if number.isdigit() else number


def caught_signals(pid: int) -> int | None:
    """Return the signals that a process has handlers for, as a bit mask; None if nobody knows."""
    found = status(f"{pid}").get("SigCgt")
    return None if found is None else procfs.hexadecimal(found)


def watched_by_epoll(pid: int, number: int) -> list[int] | None:
    """Return the descriptors that an epoll instance watches; None if nobody knows."""
    watched = read(f"/proc/{pid}/fdinfo/{number}")
    return procfs.watched_descriptors(watched) if watched else None


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
