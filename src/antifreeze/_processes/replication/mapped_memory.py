"""Memory that others see, too, or that lies in a file: found by its address, and mapped anew."""

from __future__ import annotations

import bisect
import mmap
import os

from ..._core.frozen_values import frozen
from ..._linux.memory_maps import own_mappings, own_unshared_bytes
from ..._linux.procfs import Mapping

_NO_FILES = ("/memfd:", "/dev/zero", "/dev/shm/torch_", "/SYSV", "[")  # torch counts holders
_DELETED = " (deleted)"


@frozen
class InFile:
    """A piece of a file in memory."""

    path: str
    offset: int
    size: int
    writable: bool
    shared: bool  # what is written goes to the file
    file: tuple[str, str]  # its device and inode: under the same path there may be another soon

    def map_anew(self) -> tuple[mmap.mmap, int]:
        """Map it from the page in which it begins. Return also where in the map it begins."""
        skipped = self.offset % mmap.ALLOCATIONGRANULARITY
        flags = os.O_RDWR if self.writable and self.shared else os.O_RDONLY
        descriptor = os.open(self.path, flags | os.O_CLOEXEC)
        try:
            mapped = mmap.mmap(
                descriptor,
                self.size + skipped,
                flags=mmap.MAP_SHARED if self.shared else mmap.MAP_PRIVATE,
                prot=mmap.PROT_READ | (mmap.PROT_WRITE if self.writable else 0),
                offset=self.offset - skipped,
            )
        finally:
            os.close(descriptor)
        return mapped, skipped


class Areas:
    """The memory of this process, as it is mapped: read when it is first asked for."""

    def __init__(self) -> None:
        self._areas: list[Mapping] = []
        self._starts: list[int] = []

    def is_readable(self, address: int) -> bool:
        """Whether this process could read what is at an address when this first looked. (Not what
        is merely reserved.)"""
        if not self._areas:
            self._read()
        area = self._among(address)
        return area is not None and area.rights.startswith("r")

    def in_file(self, address: int, size: int) -> InFile | None:
        """Return which piece of a file is mapped at an address; None: it is not, or no longer what
        is there."""
        area = self._at(address)
        if area is None or address + size > area.high or not area.path.startswith("/"):
            return None
        if area.path.startswith(_NO_FILES) or area.path.endswith(_DELETED):
            return None
        shared = _is_shared(area)
        if not _is_there(area) or (not shared and _is_changed(address)):
            return None
        offset = area.offset + address - area.low
        file = area.device, area.inode
        writable = area.rights[1] == "w"
        return InFile(area.path, offset, size, writable, shared, file)

    def is_shared(self, address: int) -> bool:
        """Whether other processes see what is written at an address, or might."""
        area = self._at(address)
        return area is not None and _is_shared(area)

    def _at(self, address: int) -> Mapping | None:
        for _ in range(2):
            if (area := self._among(address)) is not None:
                return area
            self._read()  # for the first time; or it was mapped since
        return None

    def _among(self, address: int) -> Mapping | None:
        place = bisect.bisect_right(self._starts, address) - 1
        return self._areas[place] if place >= 0 and address < self._areas[place].high else None

    def _read(self) -> None:
        self._areas = own_mappings()
        self._starts = [area.low for area in self._areas]


def _is_shared(area: Mapping) -> bool:
    return area.rights[3] == "s"


def _is_there(area: Mapping) -> bool:
    """Whether the file is still at its path."""
    try:
        there = os.stat(area.path)
    except OSError:  # removed, or of another namespace
        return False
    device = f"{os.major(there.st_dev):02x}:{os.minor(there.st_dev):02x}"
    # (Some file systems tell another device there than here.)
    same_device = device == area.device or area.device.startswith("00:")
    return str(there.st_ino) == area.inode and same_device


def _is_changed(address: int) -> bool:
    """Whether somebody wrote to a private map: that is in no file. Where nobody can tell, it counts
    as written to."""
    return own_unshared_bytes(address) != 0
