"""How a quantity is spread: counts in buckets that grow with the value, as in HDR histograms.

A bucket is what numbers share in the first two bytes of their binary form: the exponent, and four
bits of what follows it. So a value is known to 3 %, from nanoseconds to years, in 16 buckets an
octave; adding many at once costs 0.06 us each (a sketch from the registry: 0.9 us), and nothing is
lost by adding two histograms. See docs/decisions/accounting.md.
"""

from __future__ import annotations

from array import array
from collections import Counter
from collections.abc import Iterable, Iterator
from struct import pack, unpack

_SHIFT = 48  # bits of a double that are left out
_LITTLE = array("H", [1]).tobytes()[0] == 1
_FIRST = slice(3, None, 4) if _LITTLE else slice(0, None, 4)  # two bytes of eight


class Histogram:
    """Count values that are not negative. Its size depends on their range, not on their number."""

    __slots__ = ("_buckets", "count", "highest", "total")

    def __init__(self, values: Iterable[float] = ()) -> None:
        self._buckets: Counter[int] = Counter()
        self.count = 0
        self.total = 0.0
        self.highest = 0.0
        self.add_all(array("d", values))

    def add(self, value: float) -> None:
        self.add_all(array("d", (value,)))

    def add_all(self, values: array[float]) -> None:
        """Add many at once; it is quicker."""
        if not values:
            return
        self._buckets.update(memoryview(values).cast("B").cast("H")[_FIRST])
        self.count += len(values)
        self.total += sum(values)
        self.highest = max(self.highest, max(values))

    def __add__(self, other: Histogram) -> Histogram:
        both = Histogram()
        both._buckets = self._buckets + other._buckets
        both.count, both.total = self.count + other.count, self.total + other.total
        both.highest = max(self.highest, other.highest)
        return both

    @property
    def mean(self) -> float:
        return self.total / self.count if self.count else 0.0

    def quantile(self, share: float) -> float:
        """Give the value that this share of all lies below; 0 if there are none."""
        left = share * self.count
        for bucket, count in self.buckets():
            left -= count
            if left <= 0:
                return min(bucket, self.highest)
        return self.highest

    def buckets(self) -> Iterator[tuple[float, int]]:
        """Give each bucket that is not empty: its middle, and how many values it has."""
        for bucket, count in sorted(self._buckets.items()):
            low, high = _value(bucket), _value(bucket + 1)
            yield (low + high) / 2 if low else low, count

    def __len__(self) -> int:
        """Give the number of buckets in use."""
        return len(self._buckets)

    def __repr__(self) -> str:
        if not self.count:
            return "<Histogram, empty>"
        half, most = self.quantile(0.5), self.quantile(0.99)
        return f"<Histogram of {self.count}: median {half:.3g}, 99 % {most:.3g}>"


def _value(bucket: int) -> float:
    number: float = unpack("d", pack("Q", bucket << _SHIFT))[0]
    return number
