"""A worker must not outlive the program: how it learns that the main process is gone.

With a parent thread that lives as long as the program, the kernel kills the worker (works in the
middle of any call). A worker forked from a short-lived thread would die with that thread, so there
a small thread of the worker's own watches the main process instead.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import select
import signal
import threading

_PR_SET_PDEATHSIG = 1


def die_with(main_pid: int, *, by_kernel: bool) -> None:
    """Make sure this process ends when `main_pid` does. Ends it at once if it already has."""
    if by_kernel:
        ctypes.CDLL(None, use_errno=True).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
        if _is_gone(main_pid):
            os._exit(1)  # before the kernel knew what we want
    else:
        threading.Thread(
            target=_watch, args=(main_pid,), name="antifreeze-guard", daemon=True
        ).start()


def leave_signals_to_main() -> None:
    """Let Ctrl-C be the main process's business, and SIGTERM what the kernel makes of it.

    The handler for SIGINT does nothing but is not SIG_IGN, which programs started by a dataset
    would inherit.
    """
    with contextlib.suppress(ValueError):  # not in the main thread: there is no handler to keep
        signal.signal(signal.SIGINT, lambda signum, frame: None)
        signal.signal(signal.SIGTERM, signal.SIG_DFL)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGINT})  # blocked since before the start


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
    _is_gone(main_pid, wait=True)  # bounded by the life of the main process
    os._exit(1)
