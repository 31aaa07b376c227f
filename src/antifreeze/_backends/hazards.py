"""What speaks against a fork of this process: read from it, in 0.2 ms, at a loader's first loop."""

from __future__ import annotations

import contextlib
import ctypes
import os
import sys
import threading

from .._core.descent import Program
from . import pools

OURS = "antifreeze-"  # all our threads begin so
# Idle but for a moment every few seconds, and their locks are of no use in a worker.
_HARMLESS_KINDS = frozenset({"TMonitor"})  # of tqdm
# Wait for the next backward pass; a worker cannot have one, and says so.
_HARMLESS_NAMES = ("pt_autograd",)
_ACCELERATORS = ("cuda", "xpu", "hpu", "mtia", "npu")
NATIVE = "of a native library"
# What threads of a pool do: compute, wait on a futex, yield.
_FUTEX_AND_YIELD = {"x86_64": ("202", "24"), "aarch64": ("98", "124")}
_OF_POOLS = frozenset({"running", *_FUTEX_AND_YIELD.get(os.uname().machine, ())})
_FUTEX_WAIT_PRIVATE = 0x80
_SYSCALL = ctypes.cast(ctypes.CDLL(None).syscall, ctypes.c_void_p).value or 0
_SYSCALL_BYTES = 64
_PAGE = os.sysconf("SC_PAGE_SIZE")


def program() -> Program:
    """Look at this process. Call `pools.lay_down` first: what it ends is no hazard."""
    return Program(_foreign_threads(), _accelerator(), _held_bytes())


def has_hazards() -> bool:
    """Say, roughly and fast, whether the nursery will be asked for."""
    others = (each for each in threading.enumerate() if not _is_harmless(each))
    return bool(_accelerator() or next(others, None) is not None)


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
        if _is_of_torch(call):
            continue
        if call and call[0] not in _OF_POOLS:
            names.append(NATIVE)
        else:
            unnamed += 1
    if unnamed and (more := unnamed - pools.blas_threads()) > 0:  # these look after themselves
        names += [NATIVE] * more
    return tuple(names)


def _call(task: str) -> list[str]:
    """Give the system call that a thread is in: number, six arguments, stack and code pointer."""
    with contextlib.suppress(OSError), open(f"/proc/self/task/{task}/syscall") as file:
        return file.read().split()
    return []


def _is_of_torch(call: list[str]) -> bool:
    """Say whether a thread is an idle one of the pool that `torch.set_num_threads` makes. Nothing
    ends that pool, and it looks after itself at a fork.

    It is known by the way it waits: on a futex, not through a lock of the C library but by the
    function `syscall`, as hardly anybody does.
    """
    if len(call) < 9 or int(call[2], 16) != _FUTEX_WAIT_PRIVATE:
        return False
    return 0 <= int(call[8], 16) - _SYSCALL < _SYSCALL_BYTES


def _is_harmless(thread: threading.Thread) -> bool:
    return (
        thread in (threading.main_thread(), threading.current_thread(), _sharer())
        or thread.name.startswith(OURS)
        or type(thread).__name__ in _HARMLESS_KINDS
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


def _comm(task: str) -> str | None:
    with contextlib.suppress(OSError), open(f"/proc/self/task/{task}/comm") as file:
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
