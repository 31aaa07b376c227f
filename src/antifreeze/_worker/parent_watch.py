"""A worker must not outlive the program.

With a parent thread that lives as long as the parent, the kernel kills the worker (works in the
middle of any call). A worker forked from a short-lived thread would die with that thread, so there
a small thread of the worker's own watches the other process instead.
"""

from __future__ import annotations

import os
import select
import signal
import threading

from .._linux import libc
from .._linux.oom_score import raise_oom_score
from .._transport.descriptors import Descriptor

THREAD_NAME = b"antifreeze"  # as the kernel shows it
# Of 1,000: enough to be taken before the main process, which may hold gigabytes of its own.
_OOM_SCORE = 500


def end_with(pid: int, *, by_kernel: bool) -> None:
    """Make sure this process ends when another does. Ends it at once if that is gone already."""
    if by_kernel:
        _ask_kernel()
        # It may have gone before the kernel knew what we want. (A fork server stands between.)
        if os.getppid() != pid and _is_gone(pid):
            os._exit(1)
    else:
        threading.Thread(target=_watch, args=(pid,), name="antifreeze-guard", daemon=True).start()


def watch_parent(pid: int, *, by_kernel: bool, is_parent: bool = False) -> Descriptor:
    """Return a descriptor that tells the end of the parent; end at once if it is gone already.
    `is_parent`: nobody stands between."""
    if by_kernel:
        _ask_kernel()
    try:
        parent = Descriptor(os.pidfd_open(pid))
    except ProcessLookupError:
        os._exit(1)
    # While it is our parent its number is nobody else's: so this is it, and not a successor.
    if os.getppid() != pid and (is_parent or _is_gone(pid)):  # (a fork server may stand between)
        os._exit(1)
    return parent


def go_first() -> None:
    """Have the kernel take this process, not its parents, when memory runs out."""
    raise_oom_score(_OOM_SCORE)


def unblock_interrupts() -> None:
    """Let SIGINT come, which was blocked since before the fork."""
    signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGINT})


def end_with_parent(pid: int) -> None:
    """Have the kernel end this process with the one that forked it."""
    _ask_kernel()
    if os.getppid() != pid:
        os._exit(1)


def outlive_parent() -> None:
    libc.set_parent_death_signal(0)


def name_thread() -> None:
    """Let others see that this thread is ours: what it waits for is of no interest."""
    libc.set_thread_name(THREAD_NAME)


def name_process(name: str) -> None:
    """Let `top` and the kernel's log say what this process is; 15 characters are shown. Called in
    its main thread; threads that are there keep their names. Never raises."""
    libc.set_thread_name(name.encode())


def _ask_kernel() -> None:
    libc.set_parent_death_signal(signal.SIGKILL)


def _is_gone(pid: int, *, wait: bool = False) -> bool:
    try:
        process = os.pidfd_open(pid)
    except ProcessLookupError:
        return True
    try:
        poller = select.poll()
        poller.register(process, select.POLLIN)
        return bool(poller.poll(None if wait else 0))
    finally:
        os.close(process)


def _watch(main_pid: int) -> None:
    name_thread()
    _is_gone(main_pid, wait=True)  # bounded by the life of the main process
    os._exit(1)
