"""Starting threads where a signal handler may raise at any moment.

`threading.Thread.start` cannot be interrupted safely: an exception that a signal handler raises
between the start of the thread and the end of that call makes it take back the entry of a thread
that runs, and the result is a `KeyError` in either of them (CPython 3.9 to 3.14). Signal handlers
run in the main thread only, so there the start is left to another thread.
"""

from __future__ import annotations

import _thread
import threading

from .._core.limits import LIMITS, StartLimits
from . import parent_watch


def start(thread: threading.Thread, limits: StartLimits = LIMITS.starting) -> bool:
    """Start a thread; return whether the machine gave one.

    What this raises is the exception of a signal handler, as it is. The thread has then started all
    the same, or never will: `thread.ident` says which.
    """
    if threading.current_thread() is not threading.main_thread():
        return _start(thread)
    over = _Over(limits.thread_s)
    interrupt: BaseException | None = None
    try:
        _thread.start_new_thread(_start, (thread, over))
    except RuntimeError as error:
        if _is_of_the_call(error):  # the machine gives no thread, or the program is ending
            return False
        interrupt = error
    except BaseException as error:
        interrupt = error
    for _ in range(limits.thread_tries):
        try:
            over.wait()
            break
        except BaseException as error:
            interrupt = error
    if interrupt is not None:
        try:
            raise interrupt
        finally:
            del interrupt  # it would keep this frame, and what is in it
    return thread.ident is not None


class _Over:
    """Whether a start is over, for one who waits. (Not an event: its lock is Python's, and may be
    left behind by an exception in the middle.)"""

    def __init__(self, longest_s: float) -> None:
        self._longest_s = longest_s
        self._is_set = False
        self._lock = _thread.allocate_lock()
        self._lock.acquire()

    def set(self) -> None:
        self._is_set = True
        self._lock.release()

    def wait(self) -> None:
        if not self._is_set:  # else an exception may have come right after the lock was had
            self._lock.acquire(timeout=self._longest_s)


def _start(thread: threading.Thread, over: _Over | None = None) -> bool:
    try:
        if over is not None:
            parent_watch.name_thread()
        thread.start()
    except RuntimeError:
        return False
    finally:
        if over is not None:
            over.set()
    return True


def _is_of_the_call(error: BaseException) -> bool:
    """Whether the call itself raised this, and not the function of a signal handler."""
    return error.__traceback__ is not None and error.__traceback__.tb_next is None
