"""Absolute times by which something must have happened."""

from __future__ import annotations

import heapq

from .states import State


class DeadlineKind(State):
    LOOP = "loop"  # the user's `timeout` for one batch
    LOOK = "look"  # time to see what lives do
    START = "start"  # a life must be ready
    SILENT = "silent"  # a life that closed its channel must be gone
    REST = "rest"  # a seat's back-off is over
    STOP = "stop"  # a life that was asked to leave must be gone
    TERMINATE = "terminate"  # ... that was terminated
    KILL = "kill"  # ... that was killed


Key = tuple[DeadlineKind, int, int]  # kind, seat, life; -1 where there is none


class Deadlines:
    """Keep one deadline a key; tell the earliest. Setting a key again moves its deadline."""

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
        """Say whether a deadline runs; the kind None stands for "none is needed"."""
        return key[0] is None or key in self._at

    def clear(self, key: Key) -> None:
        self._at.pop(key, None)

    def next(self) -> float | None:
        """Give the earliest deadline, or None."""
        while self._heap:
            at, serial, key = self._heap[0]
            if self._at.get(key) == (at, serial):
                return at
            heapq.heappop(self._heap)
        return None

    def pop_due(self, now: float) -> Key | None:
        """Take one deadline that has passed, the earliest first, or give None."""
        at = self.next()
        if at is None or at > now:
            return None
        _, _, key = heapq.heappop(self._heap)
        del self._at[key]
        return key
