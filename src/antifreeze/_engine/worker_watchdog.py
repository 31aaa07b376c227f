"""A thread that looks after a loader while its loop is away.

1. It sleeps until a worker dies, a channel has room for the rest of a long message, or the
   iterator is closed. In a healthy run it does next to nothing, and nobody notifies it. (With
   pinning it wakes for parcels, too, so that they are pinned while the loop is away.)
2. What the dead worker held goes to the others at once. No worker is started in its place before
   the loop comes back: if its zygote is gone, too, a fork from here would copy whatever locks the
   loop's thread holds. Nor is the user's sampler called here.
3. Deadlines wait for the loop as well: a life that seems late may have written long ago.
"""

from __future__ import annotations

import threading
import weakref
from typing import Protocol

from .._core.limits import LIMITS, AwayLimits, Limits
from .._processes.backend_protocol import Watch
from .._worker import deferred_work, parent_watch, thread_start


class Watched(Protocol):
    """What the thread looks after."""

    @property
    def closed(self) -> bool: ...

    def look_after(self) -> None:
        """Do what is due. Never raises."""


class Watchdog:
    """Look after one driver, from `start` to its close."""

    def __init__(self, watched: Watched, watch: Watch, limits: Limits = LIMITS) -> None:
        self._limits = limits
        self._watch = watch
        self._thread = threading.Thread(
            target=_run,
            args=(weakref.ref(watched), watch, limits.away),
            name="antifreeze-watchdog",
            daemon=True,
        )
        self._due = [self._thread]  # emptied by whoever starts it, or closes this

    def start(self) -> None:
        """Have the thread start in a moment, unless that is over by then. Without one, where the
        machine gives none, a death is seen when the loop comes back: later, no worse."""
        deferred_work.later(self._start, self._limits.away.after_s, self._limits.starting)

    def _start(self) -> None:
        # No lock: one that a signal handler left behind would hold up all errands. A thread that
        # starts after all sees that there is nothing to watch.
        while self._due:
            thread_start.start(self._due.pop(), self._limits.starting)

    def close(self) -> None:
        """End the thread, if it has started; bounded. May be called in it."""
        self._due.clear()
        self._watch.end()
        if self._thread.is_alive() and threading.current_thread() is not self._thread:
            self._thread.join(self._limits.away.join_s)


def _run(watched: weakref.ref[Watched], watch: Watch, limits: AwayLimits) -> None:
    parent_watch.name_thread()
    while True:  # bounded: `close`, or the end of what is watched
        watch.wait(limits.tick_s)
        driver = watched()
        if driver is None or driver.closed:
            return
        driver.look_after()
        del driver
        watch.pause(limits.pause_s)
