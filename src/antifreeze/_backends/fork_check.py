"""A last look at the other threads, under the GIL, at the very moment of a fork.

What was parked when the loop began may run by the time of the fork. So Python itself is asked to
have us look right before it forks. If a thread does not park within some milliseconds the fork
happens all the same, since nobody can stop it there: its child leaves at once, and the parent is
told why.
"""

from __future__ import annotations

import contextlib
import os
import threading
from collections.abc import Iterator

from .._clock import pause
from . import hazards
from .reachable import Reached

LOOKS, LOOK_S = 20, 0.001  # for a thread that is only passing through


class ForkHazard(Exception):
    """A fork may have copied a lock that another thread holds. Raised in the parent; the child has
    left without running any code of the program."""

    def __init__(self, words: str, number: int | None = None) -> None:
        super().__init__(words)
        self.number = number  # multiprocessing's, of the child: whoever takes its place has it


class _Check:
    def __init__(self, reached: Reached) -> None:
        self.reached, self.unsafe = reached, ""

    def look(self) -> None:
        # Python forks even if this raises. So nothing is safe before it was seen to be.
        self.unsafe = "the other threads could not be looked at"
        for _ in range(LOOKS):
            unsafe = hazards.unsafe_now(self.reached)
            if not unsafe:
                break
            pause(LOOK_S)
        self.unsafe = unsafe


_present = threading.local()  # the check of the thread that forks


def _look_before_fork() -> None:
    check: _Check | None = getattr(_present, "check", None)
    if check is not None:
        check.look()


_is_void = False  # this process was forked at a moment that was not safe


def _remember_in_child() -> None:
    """Look no more: forks of the child are its own affair."""
    global _is_void
    check: _Check | None = getattr(_present, "check", None)
    _is_void = check is not None and bool(check.unsafe)
    _present.check = None


os.register_at_fork(before=_look_before_fork, after_in_child=_remember_in_child)


@contextlib.contextmanager
def looking(reached: Reached | None) -> Iterator[_Check | None]:
    """Look at the other threads at each fork within. None: do not."""
    _present.check = check = None if reached is None else _Check(reached)
    try:
        yield check
    finally:
        _present.check = None


def is_void() -> bool:
    """Whether this process was forked at a moment that was not safe: it must do nothing."""
    return _is_void
