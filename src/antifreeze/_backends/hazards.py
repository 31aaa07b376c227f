"""What speaks against a fork of this process: read from it, in 0.2 ms, at a loader's first loop."""

from __future__ import annotations

import contextlib
import os
import sys
import threading

from .._clock import pause
from .._core.descent import SHOWN, Program
from .._core.native_pools import pool_used, pools_among
from .._core.stalls import StackLine
from .._worker.guard import THREAD_NAME
from . import pools

OURS = "antifreeze-"  # all our threads begin so
# Idle but for a moment every few seconds, and their locks are of no use in a worker.
_HARMLESS_KINDS = frozenset({"TMonitor"})  # of tqdm
# Sends what was put in a queue of multiprocessing, which makes its locks anew in a child. Torch's
# own loader leaves one behind for a moment, each time.
_FEEDER = "QueueFeederThread"
_HARMLESS_NAMES = (
    THREAD_NAME.decode(),  # of ours, about to end: Python has forgotten it
    "pt_autograd",  # waits for the next backward pass; a worker cannot have one, and says so
    # Gives memory back, for pyarrow and so for pandas. Its library holds all of its own locks
    # during a fork, and does without the thread in the child.
    "jemalloc_bg_thd",
)
_ACCELERATORS = ("cuda", "xpu", "hpu", "mtia", "npu")
LOOKS, LOOK_S = 10, 0.002  # for threads of a pool that was laid down to be gone
NATIVE = "of a native library"
# System calls: waiting on a futex, and yielding.
_FUTEX, _YIELD = {"x86_64": ("202", "24"), "aarch64": ("98", "124")}.get(
    os.uname().machine, ("", "")
)
_PAGE = os.sysconf("SC_PAGE_SIZE")


def program() -> Program:
    """Look at this process. Call `pools.lay_down` first: what it ends is no hazard."""
    threads = _foreign_threads()
    for _ in range(LOOKS):
        if set(threads) != {NATIVE}:
            break
        pause(LOOK_S)  # perhaps it is about to end
        threads = _foreign_threads()
    return Program(threads, _accelerator(), _held_bytes())


def has_hazards() -> bool:
    """Say, roughly and fast, whether the nursery will be asked for."""
    others = (each for each in threading.enumerate() if not _is_harmless(each))
    return bool(_accelerator() or next(others, None) is not None)


def left_behind(pid: int, stack: tuple[StackLine, ...]) -> str:
    """Return the native library that a process forked from this one is in, by its stack, if this
    process has the library's threads and that one has none."""
    mine = [name for task in _tasks("self") if (name := _comm(task)) is not None]
    used = pool_used(mine, [line.file for line in stack])
    if used is None:
        return ""
    pool, threads = used
    theirs = [_comm(task, str(pid)) or "" for task in _tasks(str(pid))]
    if any(each == pool for each, _ in pools_among(theirs)):
        return ""
    return f"{pool.library} ({', '.join(list(dict.fromkeys(threads))[:SHOWN])})"


def _tasks(pid: str) -> list[str]:
    with contextlib.suppress(OSError):
        return os.listdir(f"/proc/{pid}/task")
    return []


def _foreign_threads() -> tuple[str, ...]:
    python = threading.enumerate()
    names = [_name(each) for each in python if not _is_harmless(each)]
    known = {each.native_id for each in python}
    this, unnamed = _comm(str(os.getpid())), 0
    for task in os.listdir("/proc/self/task"):
        if int(task) in known or int(task) == threading.get_native_id():
            continue
        name = _comm(task)
        if name is None or name.startswith(_HARMLESS_NAMES):
            continue
        if name != this:
            names.append(name)
            continue
        call = _call(task)
        if call in ("", "running", _YIELD):  # the first: it is not told
            unnamed += 1
        elif call != _FUTEX:  # else it is idle, as threads of pools and watchdogs are
            names.append(NATIVE)
    if unnamed and (more := unnamed - pools.blas_threads()) > 0:  # these look after themselves
        names += [NATIVE] * more
    return tuple(names)


def _call(task: str) -> str:
    """Give the number of the system call that a thread is in, or "running"."""
    with contextlib.suppress(OSError), open(f"/proc/self/task/{task}/syscall") as file:
        return file.read().partition(" ")[0].strip()
    return ""


def _is_harmless(thread: threading.Thread) -> bool:
    return (
        thread in (threading.main_thread(), threading.current_thread(), _sharer())
        or thread.name.startswith(OURS)
        or type(thread).__name__ in _HARMLESS_KINDS
        or (thread.name == _FEEDER and type(thread) is threading.Thread)
    )


def _sharer() -> threading.Thread | None:
    """Give the thread in which multiprocessing waits for those who want a descriptor, if it has
    one; it looks after itself at a fork."""
    module = sys.modules.get("multiprocessing.resource_sharer")
    sharer = getattr(module, "_resource_sharer", None)
    thread: threading.Thread | None = getattr(sharer, "_thread", None)
    return thread


def _name(thread: threading.Thread) -> str:
    if isinstance(thread, threading._DummyThread):
        return NATIVE
    kind = type(thread).__name__
    return thread.name if kind == "Thread" else f"{thread.name}, {kind}"


def _comm(task: str, pid: str = "self") -> str | None:
    with contextlib.suppress(OSError), open(f"/proc/{pid}/task/{task}/comm") as file:
        return file.read().rstrip("\n")
    return None


def _accelerator() -> str:
    """Name the accelerator that this process has a context of."""
    for name in _ACCELERATORS:
        module = sys.modules.get(f"torch.{name}")
        if module is not None and getattr(module, "_initialized", False):
            return name
    return ""


def _held_bytes() -> int:
    with open("/proc/self/statm") as file:
        _, resident, shared, *_ = file.read().split()
    return (int(resident) - int(shared)) * _PAGE
