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
import signal
import struct

from .._core.frozen_values import frozen
from .._core.health.stall_detection import Activity, StackLine
from .._core.limits import LIMITS
from .._linux import live_processes as live
from .._linux import network_bytes, syscalls
from .._linux.clock import pause, process_cpu_s
from .._linux.syscalls import Syscall
from .._worker.parent_watch import THREAD_NAME

POLLED = 8  # descriptors of one `poll`, named
PRIVATE = 128  # in the operation of a futex: only this process can release it

# What waits in a descriptor, in words.
_ON_DESCRIPTOR: dict[int, str] = {
    Syscall.READ: "reading",
    Syscall.PREAD: "reading",
    Syscall.READV: "reading",
    Syscall.WRITE: "writing to",
    Syscall.FSYNC: "writing out",
    Syscall.FLOCK: "locking",
    Syscall.FCNTL: "locking",
    Syscall.CONNECT: "connecting",
    Syscall.ACCEPT: "waiting for a connection to",
    Syscall.ACCEPT4: "waiting for a connection to",
    Syscall.RECVFROM: "receiving from",
    Syscall.RECVMSG: "receiving from",
    Syscall.SENDTO: "sending to",
    Syscall.SENDMSG: "sending to",
}
_IN_WORDS: dict[int, str] = {
    Syscall.NANOSLEEP: "sleeping",
    Syscall.CLOCK_NANOSLEEP: "sleeping",
    Syscall.WAIT4: "waiting for a process it has started",
    Syscall.WAITID: "waiting for a process it has started",
    Syscall.OPEN: "opening a file",
    Syscall.OPENAT: "opening a file",
    Syscall.SEMTIMEDOP: "waiting for a semaphore",
    Syscall.SELECT: "waiting for input",
    Syscall.EPOLL_WAIT: "waiting for input",
    Syscall.EPOLL_PWAIT: "waiting for input",
}


_ON_NETWORK = frozenset(
    {
        Syscall.RECVFROM,
        Syscall.RECVMSG,
        Syscall.POLL,
        Syscall.PPOLL,
        Syscall.SELECT,
        Syscall.EPOLL_WAIT,
        Syscall.EPOLL_PWAIT,
    }
)
_OF_TIMERS = (signal.SIGALRM, signal.SIGVTALRM, signal.SIGPROF)
# A handler for one of these could release a lock, or raise.
_WAKING = (
    *_OF_TIMERS,
    signal.SIGUSR1,
    signal.SIGUSR2,
    signal.SIGCHLD,
    signal.SIGIO,
)


@frozen
class _Waiting:
    """A thread in a system call."""

    call: int
    arguments: tuple[int, ...]

    @property
    def on_lock(self) -> bool:
        return self.call == Syscall.FUTEX

    @property
    def on_own_lock(self) -> bool:
        return self.on_lock and bool(self.arguments[1] & PRIVATE)

    @property
    def on_own_lock_for_ever(self) -> bool:
        return self.on_own_lock and self.arguments[3] == 0


def activity(pid: int, stack: tuple[StackLine, ...], *, has_timer: bool = False) -> Activity | None:
    """Look at a worker process; None if it cannot be seen. `has_timer`: it has set one."""
    stat = live.stat(f"{pid}")
    if stat is None:
        return None
    cpu_s, others, io_bytes = _cpu_s(pid), 0.0, network_bytes.own_bytes(pid, stat.parent)
    for each in live.with_descendants(pid):
        others += _cpu_s(each) if each != pid else 0.0
        io_bytes += live.io_bytes(f"{each}")
    return Activity(
        cpu_s=cpu_s,
        cpu_s_of_others=others,
        io_bytes=io_bytes,
        received=_received(pid, str(pid)),
        stack=stack,
        waits_for=_waits_for(pid, stat.state, str(pid)),
        stopped=stat.state == "T",
        deadlock=_deadlock(pid),
        wakeable=_is_worker_wakeable(pid, has_timer=has_timer),
        shared_lock=_shared_lock(pid),
        own_lock=_is_on_own_lock(pid),
        wakes=live.voluntary_switches(pid, str(pid)),
    )


def of_thread(task: int, stack: tuple[StackLine, ...]) -> Activity | None:
    """Look at a thread of this process; None if it cannot be seen. Called in another thread."""
    pid = os.getpid()
    before = live.ran_s(f"{pid}/task/{task}")
    pause(LIMITS.stalls.let_run_s)
    ran = live.ran_s(f"{pid}/task/{task}") - before >= LIMITS.stalls.let_run_s / 10
    state = live.state(f"{pid}/task/{task}")
    if not state:
        return None
    waiting = _waiting(pid, str(task))
    runs, waits_for = ran or state == "R", "" if ran else _waits_for(pid, state, str(task))
    acting = [str(task)]
    if waiting is not None and waiting.on_lock and not ran:
        acting += [
            each for each in live.threads(pid) if each != str(task) and not is_ours(pid, each)
        ]
    started = [
        each
        for actor in acting
        for child in live.children(pid, actor)
        for each in live.with_descendants(child)
    ]
    stat = live.stat(f"{pid}")
    ended_ticks = stat.children_cpu if stat is not None else 0
    return Activity(
        cpu_s=sum(live.ran_s(f"{pid}/task/{actor}") for actor in acting),
        cpu_s_of_others=live.TICK_S * ended_ticks + sum(_cpu_s(each) for each in started),
        io_bytes=sum(live.io_bytes(f"{pid}/task/{actor}") for actor in acting)
        + sum(live.io_bytes(f"{each}") for each in started),
        received=_received(pid, str(task)),
        stack=stack,
        waits_for=waits_for,
        deadlock="" if runs or _is_wakeable(pid) else _deadlock(pid),
        runs=runs,
    )


def runs(pid: int) -> bool:
    """Say whether the main thread runs, or would if it got a processor."""
    return live.state(f"{pid}") == "R"


def thread_runs(task: int) -> bool:
    """Whether a thread of this process runs, or would if it got a processor.

    One that seems to is looked at for a tenth of a second: on a busy machine, one that sleeps and
    is about to wake stands in the queue for a processor as well.
    """
    name = f"{os.getpid()}/task/{task}"
    if live.state(name) != "R":
        return False
    ran = 0
    for _ in range(LIMITS.stalls.looks_at_a_thread):
        pause(LIMITS.stalls.let_run_s)
        ran += live.state(name) == "R"
    return 2 * ran > LIMITS.stalls.looks_at_a_thread


def _cpu_s(pid: int) -> float:
    """Return its processor time, and that of its children that have ended; but not our threads'.

    Not from the ticks of /proc, where the kernel tells better: those of a process and of each
    thread are rounded on their own, and their difference makes one that sleeps seem to run.
    """
    stat = live.stat(f"{pid}")
    if stat is None:
        return 0.0
    ours_s = sum(
        live.ran_s(f"{pid}/task/{task}") for task in live.threads(pid) if is_ours(pid, task)
    )
    own_s = process_cpu_s(pid)
    if own_s is None:
        own_s = live.TICK_S * stat.cpu
    return own_s + live.TICK_S * stat.children_cpu - ours_s


def is_ours(pid: int, task: str) -> bool:
    """Whether a thread is one of antifreeze."""
    return live.thread_name(pid, task) == THREAD_NAME.decode()


def _waiting(pid: int, task: str) -> _Waiting | None:
    """Return the system call that a thread is in; None if it runs, or that cannot be known."""
    call = live.system_call(f"{pid}/task/{task}")
    return _Waiting(call[0], call[1:]) if call else None


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
    caught = live.caught_signals(pid)
    return caught is None or _has_one_of(caught, _WAKING)


def _is_worker_wakeable(pid: int, *, has_timer: bool) -> bool:
    """The same of a worker. Handlers that it has inherited from this process count only if it has
    set a timer: nobody else sends it such signals."""
    caught, inherited = live.caught_signals(pid), live.caught_signals(os.getpid())
    if caught is None or inherited is None:
        return True
    if has_timer and _has_one_of(caught, _OF_TIMERS):
        return True
    return _has_one_of(caught & ~inherited, _WAKING)


def _has_one_of(mask: int, signals: tuple[signal.Signals, ...]) -> bool:
    return any(mask >> (number - 1) & 1 for number in signals)


def _deadlock(pid: int) -> str:
    """Return the locks of a deadlock, with the threads that wait for them, if there is one."""
    locks = []
    for task in live.threads(pid):
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
    named = [live.descriptor_name(pid, number) for number in numbers[:POLLED]]
    things = [each for each in named if not each.startswith("anon_inode:")]  # timers, wake-ups
    if waiting.call in _ON_DESCRIPTOR and things:
        words = f"{_ON_DESCRIPTOR[waiting.call]} {things[0]}"
    elif things:
        words = f"waiting for input from {', '.join(things)}"
    else:
        words = _IN_WORDS.get(waiting.call, syscalls.name(waiting.call))
    return f"{words} (the disk does not answer)" if state == "D" else words


def _descriptors(pid: int, waiting: _Waiting) -> list[int] | None:
    """Return what a thread waits for; None if that is not known."""
    if waiting.call in _ON_DESCRIPTOR:
        return [waiting.arguments[0]]
    if waiting.call in (Syscall.EPOLL_WAIT, Syscall.EPOLL_PWAIT):
        return live.watched_by_epoll(pid, waiting.arguments[0])
    if waiting.call not in (Syscall.POLL, Syscall.PPOLL, Syscall.SELECT):
        return []
    with contextlib.suppress(OSError, ValueError, OverflowError, struct.error):
        if waiting.call == Syscall.SELECT:
            count, address = waiting.arguments[:2]
            bits = live.memory(pid, address, (count + 7) // 8) if address else b""
            return [at for at in range(8 * len(bits)) if bits[at // 8] >> at % 8 & 1]
        address, count = waiting.arguments[:2]
        polled = live.memory(pid, address, 8 * min(count, POLLED))
        return [number for number, _, _ in struct.iter_unpack("ihh", polled)]
    return None
