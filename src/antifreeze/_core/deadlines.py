"""Enforce torch's `timeout=`, and keep the deadlines of worker processes.

A deadline is an absolute time by which something must have happened.
"""

from __future__ import annotations

import heapq

from .states import State


class DeadlineKind(State):
    TIMEOUT = "timeout"  # torch's `timeout=`: how long the loop waits for one batch
    LOOK = "look"  # time to see what lives do
    START = "start"  # a life must be ready
    SILENT = "silent"  # a life that closed its channel must be gone
    REST = "rest"  # a seat's back-off is over
    STOP = "stop"  # a life that was asked to leave must be gone
    TERMINATE = "terminate"  # ... that was terminated
    KILL = "kill"  # ... that was killed


Key = tuple[DeadlineKind, int, int]  # kind, seat, life; -1 where there is none
TIMEOUT_KEY: Key = (DeadlineKind.TIMEOUT, -1, -1)


class Deadlines:
    """Keep one deadline a key, and know the earliest. Setting a key again moves its deadline."""

    __slots__ = ("_at", "_heap", "_serial")

    def __init__(self) -> None:
        self._at: dict[Key, tuple[float, int]] = {}
        self._heap: list[tuple[float, int, Key]] = []
        self._serial = 0

    def __len__(self) -> int:
        return len(self._at)

    def set(self, key: Key, at: float) -> None:
        self._serial += 1
        self._at[key] = (at, self._serial)
        heapq.heappush(self._heap, (at, self._serial, key))
        if len(self._heap) > 64 + 4 * len(self._at):  # mostly outdated entries: build it anew
            self._heap = [(when, serial, k) for k, (when, serial) in self._at.items()]
            heapq.heapify(self._heap)

    def has(self, key: tuple[DeadlineKind | None, int, int]) -> bool:
        """Whether a deadline runs; the kind None stands for "none is needed"."""
        return key[0] is None or key in self._at

    def clear(self, key: Key) -> None:
        self._at.pop(key, None)

    def next(self) -> float | None:
        """Return the earliest deadline, or None."""
        while self._heap:
            at, serial, key = self._heap[0]
            if self._at.get(key) == (at, serial):
                return at
            heapq.heappop(self._heap)
        return None

    def pop_due(self, now: float) -> Key | None:
        """Remove the earliest deadline and return its key, if it has passed."""
        at = self.next()
        if at is None or at > now:
            return None
        _, _, key = heapq.heappop(self._heap)
        del self._at[key]
        return key


class BatchTimeout:
    """Enforce torch's `timeout=`: how long the loop may wait for one batch.

    It runs while the loop waits, and only then. Whoever calls asks `is_set` first: without a
    timeout, the default, nothing is called.
    """

    __slots__ = ("_deadlines", "_timeout_s", "is_set")

    def __init__(self, timeout_s: float, deadlines: Deadlines) -> None:
        self._timeout_s, self._deadlines = timeout_s, deadlines
        self.is_set = timeout_s > 0

    def arm(self, now: float) -> None:
        """Start the time of one batch: the loop waits from now on."""
        self._deadlines.set(TIMEOUT_KEY, now + self._timeout_s)

    def clear(self) -> None:
        """Stop the time: the loop has its answer, or has left."""
        self._deadlines.clear(TIMEOUT_KEY)

    @staticmethod
    def is_due(key: Key) -> bool:
        """Whether a deadline that has passed (`Deadlines.pop_due`) is this one."""
        return key == TIMEOUT_KEY
