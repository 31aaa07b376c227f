"""How many tickets a seat gets at a time: one, or as many as it loads in a few milliseconds.

A message costs about as much as a hundred integers. So where a batch takes microseconds, several
travel together: tickets on the way out, parcels on the way back. Where a batch takes longer than
`BundleLimits.load_s`, or more memory than `slab_bytes`, nothing changes: one at a time.
"""

from __future__ import annotations

from .limits import LIMITS, BundleLimits

_SHARE = 0.25  # of a new measurement in the running mean


class BundleSize:
    """Learn from what arrives how long the next bundles may be."""

    __slots__ = (
        "_each_bytes",
        "_each_s",
        "_free",
        "_longest",
        "_most_bytes",
        "_most_s",
        "tickets",
    )

    def __init__(self, longest: int | None = None, limits: BundleLimits = LIMITS.bundles) -> None:
        self._most_s, self._most_bytes = limits.load_s, limits.slab_bytes
        self._longest = limits.tickets if longest is None else longest
        self._each_s = self._most_s  # to load one ticket, running mean
        self._each_bytes = 0.0  # in its slab; the largest of late, slowly forgotten
        self.tickets = 1  # a bundle
        self._free: int | None = None

    def learn(self, work_s: float, parcels: int, slab_bytes: int = 0) -> None:
        """Take note of parcels: of the time it took to load them, and of their size."""
        if self._longest == 1:
            return
        self._each_s += _SHARE * (work_s / parcels - self._each_s)
        # The comparison first: where a clock stands still, the quotient has no bound.
        all_fit = self._each_s * self._longest <= self._most_s
        fitting = self._longest if all_fit else int(self._most_s / self._each_s)
        size = slab_bytes / parcels
        self._each_bytes = max(size, self._each_bytes + _SHARE * (size - self._each_bytes))
        if self._each_bytes * fitting > self._most_bytes:
            fitting = int(self._most_bytes / self._each_bytes)
        # Never more than twice as many as before: a first measurement may mislead.
        self.tickets = max(1, min(fitting, 2 * self.tickets, self._longest))

    def to_draw(self, window: int, in_window: int, drawn: int) -> int:
        """Return how many tickets to draw now: one, or enough for bundles that are worth it.

        Beyond those that are free to be drawn at any time, one for each that the loop receives.
        """
        if self._free is not None and drawn >= self._free:
            return 1 if in_window < window else 0
        room = self.tickets * window - in_window
        if self.tickets == 1:
            return 1 if room > 0 else 0
        count = room if 2 * room >= self.tickets * window else 0
        return count if self._free is None else min(count, self._free - drawn)

    def to_release(self, window: int, delivered: int) -> int:
        """Return how many batches may be handed out at once. Where each one that the loop receives
        lets another be drawn, it is one."""
        if self._free is None:
            return self.tickets
        return max(1, min(self.tickets, self._free - window - delivered))

    def slow_down(self) -> None:
        """Go one at a time: something large, something wrong, or something lost came along."""
        self._each_s = self._most_s
        self.tickets = 1

    def stay_slow(self) -> None:
        """Go one at a time until `reset`: whoever dies next should be blamed for one ticket."""
        self.slow_down()
        self._longest = 1

    def reset(self, longest: int = LIMITS.bundles.tickets, free: int | None = None) -> None:
        """Begin an epoch; what was learnt stays. `free`: batches that may be drawn at any time."""
        self._longest, self._free = longest, free
        if free == 0:
            self.stay_slow()
