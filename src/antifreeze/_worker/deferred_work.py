"""What can wait a moment, done by one thread for the whole program.

To start a thread takes its caller up to some milliseconds, and an epoch may last no longer. So what
is short, bounded and need not be done at once is done by this one, which stays for a second.

1. An errand is called once, in its turn, when its time has come. What it raises is logged.
2. There is one thread (for a moment, perhaps two); it ends when it has had nothing to do for a
   while. A forked child has none, and none of the errands.
3. There is no lock: a signal handler that raises at the end of a `with` leaves one behind.
"""

from __future__ import annotations

import os
import queue
import threading
from collections.abc import Callable

from .._core.limits import LIMITS, StartLimits
from .._linux.clock import monotonic
from .._reporting.log import logger
from . import parent_watch, thread_start

NAME = "antifreeze-errands"
Errand = Callable[[], object]
# When to do it, and what: in a list that whoever does it, or takes it back, empties.
Noted = tuple[float, list[Errand]]


class _DeferredWork:
    def __init__(self) -> None:
        # Its `put` is a single step to Python: a signal handler cannot come in the middle.
        self._new: queue.SimpleQueue[Noted | None] = queue.SimpleQueue()
        self._runs: threading.Thread | None = None

    def add(self, errand: Errand, delay_s: float, limits: StartLimits) -> bool:
        """Return whether it will be done."""
        noted = [errand]
        taken = False
        try:
            self._new.put((monotonic() + delay_s, noted))
            thread = self._runs
            if thread is None or not thread.is_alive():  # interrupted before its start, or worse
                thread = self._runs = threading.Thread(target=self._run, name=NAME, daemon=True)
                thread_start.start(thread, limits)
            taken = thread.ident is not None
        finally:
            if not taken:
                noted.clear()
        return taken

    def rest(self) -> None:
        if self._runs is not None:
            self._new.put(None)

    def _run(self) -> None:
        parent_watch.name_thread()
        waiting: list[Noted] = []
        while True:  # bounded by the errands there are
            idle_s = LIMITS.starting.idle_thread_s
            first_at = min((at for at, _ in waiting), default=monotonic() + idle_s)
            if (new := self._take(first_at - monotonic())) is not None:
                waiting.append(new)
                continue
            now = monotonic()
            due = [each for each in waiting if each[0] <= now]
            waiting = [each for each in waiting if each[0] > now]
            for _, noted in due:
                _do(noted)
            if waiting or due or not self._new.empty():
                continue
            self._runs = None  # whoever comes now starts another
            if self._new.empty():
                return
            self._runs = threading.current_thread()  # somebody came just before

    def _take(self, longest_s: float) -> Noted | None:
        try:
            return self._new.get(timeout=max(0.0, longest_s))
        except queue.Empty:
            return None


def _do(noted: list[Errand]) -> None:
    try:
        while noted:
            noted.pop()()
    except Exception:
        logger.debug("antifreeze: an errand failed", exc_info=True)


def later(errand: Errand, delay_s: float = 0.0, limits: StartLimits = LIMITS.starting) -> bool:
    """Have this called soon, in another thread; or return False: there is none to be had. What a
    signal handler raises comes out as it is; the errand may then be done, or not."""
    return _errands.add(errand, delay_s, limits)


def rest() -> None:
    """Have the thread end as soon as nothing waits. For tests."""
    _errands.rest()


def _forget_parent() -> None:
    global _errands
    _errands = _DeferredWork()


_errands = _DeferredWork()
os.register_at_fork(after_in_child=_forget_parent)
