"""What the kernel says about a process that does not move: read from /proc, nothing is sent to it.

1. Everything here may be forbidden, or gone between two lines: then it is left out.
2. Processor time and I/O count all threads, and the processes that it has started: a sample that
   waits for a program is as busy as the program.
3. A deadlock is said only where it is proven: every thread but ours waits, without a limit, for a
   lock of its own process. Nobody is left to release it, but for a handler of a signal.
4. Of our own process one thread is looked at, and what it has started: the rest of the program has
   work of its own. Only if it waits for a lock, those who might release it count as well.
"""

from __future__ import annotations

import contextlib
import os
import re
import signal
import struct
from collections.abc import Iterator
from pathlib import Path

from .._core.health.stall_detection import Activity, StackLine
from .._core.limits import LIMITS
from .._core.messages import frozen
from .._linux import network_bytes
from .._linux.clock import pause, process_cpu_s
from .._worker.parent_watch import THREAD_NAME
from .child_processes import children, family, tasks

TICK_S = 1.0 / os.sysconf("SC_CLK_TCK")
POLLED = 8  # descriptors of one `poll`, named
PRIVATE = 128  # in the operation of a futex: only this process can release it

# System calls by number, as far as people wait in them.
_CALLS = {
    "x86_64": {
        "futex": 202,
        "read": 0,
        "write": 1,
        "pread64": 17,
        "readv": 19,
        "openat": 257,
        "open": 2,
        "fsync": 74,
        "flock": 73,
        "fcntl": 72,
        "poll": 7,
        "ppoll": 271,
        "select": 23,
        "epoll_wait": 232,
        "epoll_pwait": 281,
        "connect": 42,
        "accept": 43,
        "accept4": 288,
        "recvfrom": 45,
        "recvmsg": 47,
        "sendto": 44,
        "sendmsg": 46,
        "nanosleep": 35,
        "clock_nanosleep": 230,
        "wait4": 61,
        "waitid": 247,
        "semtimedop": 220,
        "pselect6": 270,
        "rt_sigtimedwait": 128,
        "sched_yield": 24,
    },
    "aarch64": {
        "futex": 98,
        "read": 63,
        "write": 64,
        "pread64": 67,
        "readv": 65,
        "openat": 56,
        "fsync": 82,
        "flock": 32,
        "fcntl": 25,
        "ppoll": 73,
        "epoll_pwait": 22,
        "connect": 203,
        "accept": 202,
        "accept4": 242,
        "recvfrom": 207,
        "recvmsg": 212,
        "sendto": 206,
        "sendmsg": 211,
        "nanosleep": 101,
        "clock_nanosleep": 115,
        "wait4": 260,
        "waitid": 95,
        "semtimedop": 192,
        "pselect6": 72,
        "rt_sigtimedwait": 137,
        "sched_yield": 124,
    },
}
_NAMES = {number: name for name, number in _CALLS.get(os.uname().machine, {}).items()}
# What waits in a descriptor, in words.
_ON_DESCRIPTOR = {
    "read": "reading",
    "pread64": "reading",
    "readv": "reading",
    "write": "writing to",
    "fsync": "writing out",
    "flock": "locking",
    "fcntl": "locking",
    "connect": "connecting",
    "accept": "waiting for a connection to",
    "accept4": "waiting for a connection to",
    "recvfrom": "receiving from",
    "recvmsg": "receiving from",
    "sendto": "sending to",
    "sendmsg": "sending to",
}
_IN_WORDS = {
    "nanosleep": "sleeping",
    "clock_nanosleep": "sleeping",
    "wait4": "waiting for a process it has started",
    "waitid": "waiting for a process it has started",
    "open": "opening a file",
    "openat": "opening a file",
    "semtimedop": "waiting for a semaphore",
    "select": "waiting for input",
    "epoll_wait": "waiting for input",
    "epoll_pwait": "waiting for input",
}


_ON_NETWORK = frozenset(
    {"recvfrom", "recvmsg", "poll", "ppoll", "select", "epoll_wait", "epoll_pwait"}
)
# A handler for one of these could release a lock, or raise.
_WAKING = (
    signal.SIGALRM,
    signal.SIGVTALRM,
    signal.SIGPROF,
    signal.SIGUSR1,
    signal.SIGUSR2,
    signal.SIGCHLD,
    signal.SIGIO,
)


@frozen
class _Waiting:
    """A thread in a system call."""

    call: str
    arguments: tuple[int, ...]

    @property
    def on_lock(self) -> bool:
        return self.call == "futex"

    @property
    def on_own_lock(self) -> bool:
        return self.on_lock and bool(self.arguments[1] & PRIVATE)

    @property
    def on_own_lock_for_ever(self) -> bool:
        return self.on_own_lock and self.arguments[3] == 0


def activity(pid: int, stack: tuple[StackLine, ...]) -> Activity | None:
    """Look at a process; None if it cannot be seen."""
    fields = _stat(f"{pid}")
    if len(fields) < 2:
        return None
    state, parent = fields[0], int(fields[1])
    cpu_s, others, io_bytes = _cpu_s(pid), 0.0, network_bytes.own_bytes(pid, parent)
    for each in family(pid):
        others += _cpu_s(each) if each != pid else 0.0
        io_bytes += _io_bytes(f"{each}")
    return Activity(
        cpu_s=cpu_s,
        cpu_s_of_others=others,
        io_bytes=io_bytes,
        received=_received(pid, str(pid)),
        stack=stack,
        waits_for=_waits_for(pid, state, str(pid)),
        stopped=state == "T",
        deadlock=_deadlock(pid),
        wakeable=_is_wakeable(pid),
        shared_lock=_shared_lock(pid),
        own_lock=_is_on_own_lock(pid),
        wakes=network_bytes.wakes(pid, str(pid)),
    )


def of_thread(task: int, stack: tuple[StackLine, ...]) -> Activity | None:
    """Look at a thread of this process; None if it cannot be seen. Called in another thread."""
    pid = os.getpid()
    before = _ran_s(f"{pid}/task/{task}")
    pause(LIMITS.stalls.let_run_s)
    ran = _ran_s(f"{pid}/task/{task}") - before >= LIMITS.stalls.let_run_s / 10
    state = _state(f"{pid}/task/{task}")
    if not state:
        return None
    waiting = _waiting(pid, str(task))
    runs, waits_for = ran or state == "R", "" if ran else _waits_for(pid, state, str(task))
    acting = [str(task)]
    if waiting is not None and waiting.on_lock and not ran:
        acting += [each for each in tasks(pid) if each != str(task) and not is_ours(pid, each)]
    started = [each for actor in acting for child in children(pid, actor) for each in family(child)]
    ended_ticks = sum(map(int, _stat(f"{pid}")[13:15]))
    return Activity(
        cpu_s=sum(_ran_s(f"{pid}/task/{actor}") for actor in acting),
        cpu_s_of_others=TICK_S * ended_ticks + sum(_cpu_s(each) for each in started),
        io_bytes=sum(_io_bytes(f"{pid}/task/{actor}") for actor in acting)
        + sum(_io_bytes(f"{each}") for each in started),
        received=_received(pid, str(task)),
        stack=stack,
        waits_for=waits_for,
        deadlock="" if runs or _is_wakeable(pid) else _deadlock(pid),
        runs=runs,
    )


def runs(pid: int) -> bool:
    """Say whether the main thread runs, or would if it got a processor."""
    return _state(f"{pid}") == "R"


def call_of_own(task: str) -> str:
    """Return the system call that a thread of this process is in, or "running"; nothing if that is
    not told."""
    name = _read(f"/proc/self/task/{task}/syscall").partition(" ")[0].strip()
    return _NAMES.get(int(name), f"system call {name}") if name.isdigit() else name


def thread_runs(task: int) -> bool:
    """Whether a thread of this process runs, or would if it got a processor.

    One that seems to is looked at for a tenth of a second: on a busy machine, one that sleeps and
    is about to wake stands in the queue for a processor as well.
    """
    name = f"{os.getpid()}/task/{task}"
    if _state(name) != "R":
        return False
    ran = 0
    for _ in range(LIMITS.stalls.looks_at_a_thread):
        pause(LIMITS.stalls.let_run_s)
        ran += _state(name) == "R"
    return 2 * ran > LIMITS.stalls.looks_at_a_thread


def _read(path: str) -> str:
    with contextlib.suppress(OSError):
        return Path(path).read_text(errors="replace")
    return ""


def _stat(process: str) -> list[str]:
    """Give the fields of the line of a process or thread, from the state on."""
    return _read(f"/proc/{process}/stat").rpartition(")")[2].split()


def _state(process: str) -> str:
    return next(iter(_stat(process)), "")


def _ran_s(process: str) -> float:
    """Return how long a thread has run: to the nanosecond, or in ticks if the kernel counts no
    better."""
    if finely := _read(f"/proc/{process}/schedstat").split():
        return int(finely[0]) / 1e9
    return TICK_S * sum(map(int, _stat(process)[11:13]))


def _cpu_s(pid: int) -> float:
    """Return its processor time, and that of its children that have ended; but not our threads'.

    Not from the ticks of /proc, where the kernel tells better: those of a process and of each
    thread are rounded on their own, and their difference makes one that sleeps seem to run.
    """
    fields = _stat(f"{pid}")
    if len(fields) < 15:
        return 0.0
    ours_s = sum(_ran_s(f"{pid}/task/{task}") for task in tasks(pid) if is_ours(pid, task))
    own_s = process_cpu_s(pid)
    if own_s is None:
        own_s = TICK_S * sum(map(int, fields[11:13]))
    return own_s + TICK_S * sum(map(int, fields[13:15])) - ours_s


def is_ours(pid: int, task: str) -> bool:
    """Say whether a thread is one of antifreeze."""
    return _read(f"/proc/{pid}/task/{task}/comm").strip() == THREAD_NAME.decode()


def _io_bytes(process: str) -> int:
    found = re.findall(r"^(?:rchar|wchar|read_bytes): (\d+)$", _read(f"/proc/{process}/io"), re.M)
    return sum(map(int, found))


def _waiting(pid: int, task: str) -> _Waiting | None:
    """Say which system call a thread is in; None if it runs, or that cannot be known."""
    fields = _read(f"/proc/{pid}/task/{task}/syscall").split()
    if len(fields) < 7 or not fields[0].isdigit():
        return None
    name = _NAMES.get(int(fields[0]), f"system call {fields[0]}")
    return _Waiting(name, tuple(int(field, 16) for field in fields[1:7]))


def _received(pid: int, task: str) -> int:
    """Return a number that changes when something comes to what a thread waits for, if that is a
    network: the kernel does not count what is taken by `recv` as read."""
    waiting = _waiting(pid, task)
    if waiting is None or waiting.call not in _ON_NETWORK:
        return network_bytes.NOTHING
    return network_bytes.awaited(pid, task, _descriptors(pid, waiting))


def _is_wakeable(pid: int) -> bool:
    """Whether a process has a handler for a signal, or that is not told. faulthandler's, which
    releases nothing, cannot be told from others."""
    caught = re.search(r"^SigCgt:\s+([0-9a-f]+)$", _read(f"/proc/{pid}/status"), re.M)
    return caught is None or any(int(caught[1], 16) >> (at - 1) & 1 for at in _WAKING)


def _deadlock(pid: int) -> str:
    """Return the locks of a deadlock, with the threads that wait for them, if there is one."""
    locks = []
    for task in tasks(pid):
        if task != str(pid) and is_ours(pid, task):
            continue
        waiting = _waiting(pid, task)
        if waiting is None or not waiting.on_own_lock_for_ever:
            return ""
        locks.append(f"{task}:{waiting.arguments[0]:x}")
    return " ".join(sorted(locks))


def _shared_lock(pid: int) -> int:
    """Say where the lock is that the main thread waits for without a limit, if other processes have
    it, too."""
    waiting = _waiting(pid, str(pid))
    if waiting is None or not waiting.on_lock or waiting.arguments[1] & PRIVATE:
        return 0
    return waiting.arguments[0] if waiting.arguments[3] == 0 else 0


def _is_on_own_lock(pid: int) -> bool:
    """Whether the main thread waits for a lock of its own process, for a time or forever."""
    waiting = _waiting(pid, str(pid))
    return waiting is not None and waiting.on_own_lock


def _waits_for(pid: int, state: str, task: str) -> str:
    """Say in words what a thread waits for."""
    if state in ("T", "t"):
        return "stopped by a signal" if state == "T" else "stopped by a debugger"
    waiting = _waiting(pid, task)
    if waiting is None:
        return "running" if state == "R" else ""
    if waiting.on_lock:
        return "waiting for a lock"
    numbers = _descriptors(pid, waiting) or []
    named = [_thing(pid, number) for number in numbers[:POLLED]]
    things = [each for each in named if not each.startswith("anon_inode:")]  # timers, wake-ups
    if waiting.call in _ON_DESCRIPTOR and things:
        words = f"{_ON_DESCRIPTOR[waiting.call]} {things[0]}"
    elif things:
        words = f"waiting for input from {', '.join(things)}"
    else:
        words = _IN_WORDS.get(waiting.call, waiting.call)
    return f"{words} (the disk does not answer)" if state == "D" else words


def _descriptors(pid: int, waiting: _Waiting) -> list[int] | None:
    """Return what a thread waits for; None if that is not known."""
    if waiting.call in _ON_DESCRIPTOR:
        return [waiting.arguments[0]]
    if waiting.call in ("epoll_wait", "epoll_pwait"):
        watched = _read(f"/proc/{pid}/fdinfo/{waiting.arguments[0]}")
        found = re.findall(r"^tfd:\s+(\d+)", watched, re.M)
        return [int(number) for number in found] if watched else None
    if waiting.call not in ("poll", "ppoll", "select"):
        return []
    with contextlib.suppress(OSError, ValueError, OverflowError, struct.error):
        if waiting.call == "select":
            count, address = waiting.arguments[:2]
            bits = _memory(pid, address, (count + 7) // 8) if address else b""
            return [at for at in range(8 * len(bits)) if bits[at // 8] >> at % 8 & 1]
        address, count = waiting.arguments[:2]
        polled = _memory(pid, address, 8 * min(count, POLLED))
        return [number for number, _, _ in struct.iter_unpack("ihh", polled)]
    return None


def _memory(pid: int, address: int, size: int) -> bytes:
    with open(f"/proc/{pid}/mem", "rb", buffering=0) as memory:
        memory.seek(address)
        return memory.read(size)


def _thing(pid: int, number: int) -> str:
    """Name what is open: a path, or the peer of a socket."""
    try:
        name = os.readlink(f"/proc/{pid}/fd/{number}")
    except OSError:
        return f"descriptor {number}"
    if name.startswith("socket:["):
        inode = name[8:-1]
        return next(_peers(pid, inode), "a socket")
    return "a pipe" if name.startswith("pipe:[") else name


def _peers(pid: int, inode: str) -> Iterator[str]:
    """Yield who is at the other end of a socket, if it is listed."""
    for table in ("tcp", "tcp6", "udp", "udp6"):
        for line in _read(f"/proc/{pid}/net/{table}").splitlines()[1:]:
            fields = line.split()
            if len(fields) > 9 and fields[9] == inode:
                address, _, port = fields[2].partition(":")
                yield f"{_address(address)}:{int(port, 16)}"
    for line in _read(f"/proc/{pid}/net/unix").splitlines()[1:]:
        fields = line.split()
        if len(fields) > 7 and fields[6] == inode:
            yield f"the socket {fields[7]}"


def _address(text: str) -> str:
    """Read an address as the kernel writes it: words of four bytes, each in the machine's order."""
    import ipaddress

    raw = bytes.fromhex(text)
    words = [raw[start : start + 4][::-1] for start in range(0, len(raw), 4)]
    found = ipaddress.ip_address(b"".join(words))
    return f"[{found}]" if found.version == 6 else str(found)
