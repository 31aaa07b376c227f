"""What a worker measured of the batches it loaded."""

from __future__ import annotations

from collections.abc import Iterator

from .frozen_values import message


@message
class Timings:
    """What a worker measured of its parcels, in seconds; times are of the machine's one clock."""

    fetch_s: float = 0.0
    collate_s: float = 0.0
    pack_s: float = 0.0
    begun_at: float = 0.0
    sealed_at: float = 0.0
    io_s: float = 0.0  # of fetching: it waited, for a disk, a network, a lock, a nap
    samples: int = 0
    slowest_s: float = 0.0  # the slowest sample, where they were timed one by one
    slowest: int = 0  # its place in the batch
    of: int = 1  # it is a part of what so many took, between the two times

    @property
    def work_s(self) -> float:
        return self.fetch_s + self.collate_s + self.pack_s

    def parts(self, count: int) -> Iterator[Timings]:
        """Give what falls to each of so many parcels that were timed together."""
        for place in range(count):
            yield Timings(
                self.fetch_s / count,
                self.collate_s / count,
                self.pack_s / count,
                self.begun_at,
                self.sealed_at,
                self.io_s / count,
                self.samples // count + (place < self.samples % count),
                self.slowest_s if count == 1 else 0.0,
                self.slowest,
                count,
            )
