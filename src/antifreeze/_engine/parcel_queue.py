"""Parcels in the main process: from their arrival until the loop takes them."""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence

from .._core.tickets import Errand
from .._processes.backend_protocol import Parcel


class ParcelQueue:
    """Keep the parcels of one driver. By whoever holds its lock."""

    __slots__ = ("_arrived", "ready")

    def __init__(self) -> None:
        self._arrived: dict[int, Parcel] = {}  # by ticket number
        # What the loop gets next, one a `next`. Always the same object.
        self.ready: deque[tuple[Parcel, Errand]] = deque()

    def take(self, parcels: Sequence[Parcel]) -> None:
        """Keep what has arrived until the core releases or drops it."""
        for parcel in parcels:
            if parcel.number in self._arrived:
                parcel.drop()  # it came twice; the first one counts
            else:
                self._arrived[parcel.number] = parcel

    def release(self, errands: Sequence[Errand], *, copied: bool) -> None:
        """Put parcels in line for the loop. `copied`: their slabs are about to be used again."""
        for errand in errands:
            parcel = self._arrived.pop(errand.ticket.number)
            if copied:  # at once: the next command may have the slab filled
                parcel.copy_out()
            self.ready.append((parcel, errand))

    def drop(self, number: int) -> None:
        """Drop a parcel that has arrived, if there is one of this number."""
        parcel = self._arrived.pop(number, None)
        if parcel is not None:
            parcel.drop()

    def drop_ready(self) -> None:
        """Drop what the loop has not taken."""
        while self.ready:
            self.ready.popleft()[0].drop()

    def drop_all(self) -> None:
        """Drop everything."""
        for parcel in self._arrived.values():
            parcel.drop()
        self._arrived.clear()
        self.drop_ready()
