"""Time that passes only when told to."""

from __future__ import annotations


class VirtualClock:
    """A clock that stands still until it is moved, and never goes back."""

    def __init__(self, start: float = 0.0) -> None:
        self._now = start

    def now(self) -> float:
        return self._now

    def move_to(self, when: float) -> None:
        if when < self._now:
            raise ValueError(f"time does not go back from {self._now} to {when}")
        self._now = when
