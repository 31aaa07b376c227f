"""How many permits a `threading.Semaphore` arrives with in a process that has no threads of ours.

A permit that another thread has taken comes back, as a lock arrives free: the thread is not there
to return it. But a semaphore without a bound does not know how many it began with, and one that
began with none is a signal, which must not be given by us. So:

1. What a frame of a thread shows to hold a permit (a `with`, or a `finally` that calls `release`)
   is added.
2. Once a forked worker has proven to wait forever for a semaphore, one that has no permit left, and
   for which nobody waits here, arrives with one. Without it the run is lost.
"""

from __future__ import annotations

import os
import sys
import threading
from collections.abc import Callable
from types import FrameType

from ...fork_safety.lock_search import is_used_up
from ...fork_safety.open_blocks import entered_by

_has_frozen = False


def note_freeze() -> None:
    """Note that a worker of this process waits forever for a semaphore."""
    global _has_frozen
    _has_frozen = True


def forget_freeze() -> None:
    """Note that a permit more was of no use, or that this is another process."""
    global _has_frozen
    _has_frozen = False


os.register_at_fork(after_in_child=forget_freeze)


def reduce_semaphore(
    semaphore: threading.Semaphore,
) -> tuple[Callable[[int], threading.Semaphore], tuple[int]]:
    return type(semaphore), (permits(semaphore),)


def permits(semaphore: threading.Semaphore) -> int:
    """Return with how many permits a semaphore is sent."""
    here: int = semaphore._value
    taken = sum(_taken(frame, semaphore) for frame in sys._current_frames().values())
    if not (here or taken) and _has_frozen and is_used_up(semaphore):
        return 1
    return here + taken


def _taken(frame: FrameType | None, semaphore: threading.Semaphore) -> int:
    count = 0
    while frame is not None:
        count += sum(each is semaphore for each in entered_by(frame))
        frame = frame.f_back
    return count
