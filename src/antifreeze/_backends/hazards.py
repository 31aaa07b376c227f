"""What speaks against a fork of this process: read from it, in 0.2 ms, at a loader's first loop."""

from __future__ import annotations

import contextlib
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
    this, unnamed = _comm(os.getpid()), 0
    for task in os.listdir("/proc/self/task"):
        if int(task) in known or int(task) == threading.get_native_id():
            continue
        name = _comm(int(task))
        if name is None or name.startswith(_HARMLESS_NAMES):
            continue
        if name == this:
            unnamed += 1
        else:
            names.append(name)
    if unnamed and (more := unnamed - pools.blas_threads()) > 0:  # these look after themselves
        names += ["of a native library"] * more
    return tuple(names)


def _is_harmless(thread: threading.Thread) -> bool:
    return (
        thread in (threading.main_thread(), threading.current_thread())
        or thread.name.startswith(OURS)
        or type(thread).__name__ in _HARMLESS_KINDS
    )


def _name(thread: threading.Thread) -> str:
    if isinstance(thread, threading._DummyThread):
        return "of a native library"
    kind = type(thread).__name__
    return thread.name if kind == "Thread" else f"{thread.name}, {kind}"


def _comm(task: int) -> str | None:
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
