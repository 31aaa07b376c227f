"""Where time goes: a worker's timings of one parcel, and the loop's waiting and working."""

from __future__ import annotations

from .messages import message, record


@message
class Timings:
    """Measured where it happens, in seconds; the two times are of the machine's one clock."""

    fetch_s: float = 0.0
    collate_s: float = 0.0
    pack_s: float = 0.0
    begun_at: float = 0.0
    sealed_at: float = 0.0


@record
class LoopAccount:
    """Split the life of a loop into waiting for data and being away with its own work."""

    waited_s: float = 0.0
    away_s: float = 0.0
    asks: int = 0
    _left_at: float | None = None

    def count(self, came_at: float, left_at: float) -> None:
        """Add one call of `next`: when the loop came, and when it left."""
        if self._left_at is not None:
            self.away_s += came_at - self._left_at
        self.waited_s += left_at - came_at
        self._left_at = left_at
        self.asks += 1

    def pause(self) -> None:
        """Forget when the loop left: time between two epochs is not work of the loop."""
        self._left_at = None


@record
class WorkAccount:
    """Sum the timings of all parcels that arrived."""

    parcels: int = 0
    fetch_s: float = 0.0
    collate_s: float = 0.0
    pack_s: float = 0.0

    def count(self, fetch_s: float, collate_s: float) -> None:
        """Add one batch that was loaded where it is used."""
        self.parcels += 1
        self.fetch_s += fetch_s
        self.collate_s += collate_s

    def add(self, timings: Timings, parcels: int) -> None:
        self.parcels += parcels
        self.fetch_s += timings.fetch_s
        self.collate_s += timings.collate_s
        self.pack_s += timings.pack_s
