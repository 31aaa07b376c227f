"""A thread that looks after a loader while its loop is away.

1. It sleeps until a worker dies, a deadline passes or the iterator is closed. In a healthy run it
   does nothing at all, and nobody notifies it.
2. While the loop is inside `next`, all that is the loop's own business.
3. It never starts a worker: by a fork, that would be born with whatever locks the loop's thread
   holds just then. And it never calls the user's sampler. Both wait until the loop comes back.
"""

from __future__ import annotations

import threading
import weakref
from typing import Protocol

from ._backends.base import Watch

# A deadline that the loop set after the thread went to sleep is noticed this late, at most.
TICK_S = 1.0
# Between two looks, at least: a loop in pure Python feels a thread that wakes more often.
PAUSE_S = 0.02
JOIN_S = 1.0  # the thread is asleep, or in the middle of one step


class Watched(Protocol):
    """What the thread looks after."""

    @property
    def closed(self) -> bool: ...

    def look_after(self) -> float:
        """Do what is due. Give the seconds until the next deadline."""


class Watchdog:
    """Look after one driver, from the first epoch to its close."""

    def __init__(self, watched: Watched, watch: Watch) -> None:
        self._watch = watch
        self._thread = threading.Thread(
            target=_run, args=(weakref.ref(watched), watch), name="antifreeze-watchdog", daemon=True
        )
        self._thread.start()

    def close(self) -> None:
        """End the thread; bounded. May be called in it."""
        self._watch.end()
        if threading.current_thread() is not self._thread:
            self._thread.join(JOIN_S)


def _run(watched: weakref.ref[Watched], watch: Watch) -> None:
    timeout_s = TICK_S
    while True:  # bounded: `close`, or the end of what is watched
        watch.wait(min(timeout_s, TICK_S))
        driver = watched()
        if driver is None or driver.closed:
            return
        timeout_s = max(0.0, driver.look_after())
        del driver
        watch.pause(PAUSE_S)
