"""What making any process of ours takes: tries, no Ctrl-C in the middle, letting go of it."""

from __future__ import annotations

import contextlib
import multiprocessing.process
import os
import signal
import threading
from collections.abc import Callable, Iterator
from multiprocessing.process import BaseProcess
from typing import Any, TypeVar

from ..._core.limits import LIMITS, StartLimits
from ..._linux.clock import pause

T = TypeVar("T")


def patiently(make: Callable[[], T], limits: StartLimits = LIMITS.starting) -> T:
    """Make a process. Where the machine gives none, try again for a moment: workers of the last
    epoch may be about to end. Raise OSError if it still gives none."""
    for _ in range(limits.process_tries):
        try:
            return make()
        except BlockingIOError:  # EAGAIN: a limit of processes
            pause(limits.process_pause_s)
    return make()


@contextlib.contextmanager
def without_interrupts() -> Iterator[None]:
    """Keep Ctrl-C waiting for a moment: in the middle of a fork it would be lost, or hit the child.

    The child starts with SIGINT blocked and unblocks it when it knows what to do with it. The
    mask is of this thread alone; what another thread receives, Python runs in the main thread, so
    there the handler only takes note as well.
    """
    waiting: list[Any] = []
    handler = None
    if threading.current_thread() is threading.main_thread():
        handler = signal.getsignal(signal.SIGINT)
    if callable(handler):
        signal.signal(signal.SIGINT, lambda *received: waiting.append(received))
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)
        if callable(handler):
            signal.signal(signal.SIGINT, handler)
            if waiting:
                handler(*waiting[0])


def disown(*processes: BaseProcess) -> None:
    """Let go of children, of which nobody asks anything any more, and have multiprocessing forget
    them. In a process of the user's own making it would else end at exit what it takes for a child
    of that process.

    What else happens when they are collected is Python code that the interpreter calls, and in
    which Ctrl-C would be lost; so it happens here. May raise KeyboardInterrupt when it is done.
    """
    with without_interrupts():
        for process in processes:
            multiprocessing.process._children.discard(process)  # type: ignore[attr-defined]
            multiprocessing.process._dangling.discard(process)  # type: ignore[attr-defined]
            popen = getattr(process, "_popen", None)
            if popen is not None and process._parent_pid == os.getpid():  # type: ignore[attr-defined]
                popen.close()
