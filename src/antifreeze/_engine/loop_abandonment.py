"""How long a loop has been away, and whether an error has ended it while something holds its
iterator: a traceback that a notebook keeps, say.

Letting its workers go is safe even if somebody does come back: they are started again, and load
what is still due. So the evidence only has to make it worth while.
"""

from __future__ import annotations

import gc
import itertools
import weakref
from types import FrameType, GeneratorType

from .._core.limits import LIMITS, AwayLimits

# What stands between an iterator and its loop.
_BETWEEN = (GeneratorType, enumerate, zip, map, filter, itertools.islice, itertools.chain)


class LoopAbandonment:
    """Time of one loop. All by whoever holds the driver's lock."""

    def __init__(self, limits: AwayLimits = LIMITS.away) -> None:
        self._away_s = limits.abandoned_s
        self._longest_s = limits.asked_again_s
        self._left_at: float | None = None  # None: it is there, or has not begun
        self._raised = False
        self._ask_at = 0.0
        self._wait_s = limits.abandoned_s
        self.iterator: weakref.ref[object] | None = None

    def come(self) -> None:
        self._left_at = None

    def leave(self, now: float, *, raised: bool) -> None:
        """Note that `next` has returned, or raised an error."""
        self._left_at, self._raised = now, raised
        self._ask_at, self._wait_s = now + self._away_s, self._away_s

    def is_for_good(self, now: float) -> bool:
        """Whether an error has ended the loop, as far as can be seen, and nobody has come back for
        a while."""
        if self._left_at is None or now < self._ask_at:
            return False
        self._wait_s = min(2 * self._wait_s, self._longest_s)
        self._ask_at = now + self._wait_s
        return self._raised or self._is_held_by_an_ended_frame()

    def _is_held_by_an_ended_frame(self) -> bool:
        """Whether a frame holds the iterator that has ended: only a traceback keeps such a frame.
        (What running frames and suspended generators hold is not told as theirs.)"""
        iterator = None if self.iterator is None else self.iterator()
        if iterator is None:
            return False
        holders = gc.get_referrers(iterator)
        between = [each for each in holders if isinstance(each, _BETWEEN)]
        if between:
            holders += gc.get_referrers(*between)
        return any(isinstance(each, FrameType) for each in holders)
