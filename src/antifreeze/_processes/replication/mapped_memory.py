"""Memory that others see, too, or that lies in a file: found by its address, and mapped anew."""

from __future__ import annotations

import bisect
import contextlib
import mmap
import os
import re

from ..._core.messages import frozen

_AREA = re.compile(rb"^([0-9a-f]+)-([0-9a-f]+) (\S{4}) ([0-9a-f]+) (\S+) (\d+) *(.*)$")
_NO_FILES = (b"/memfd:", b"/dev/zero", b"/dev/shm/torch_", b"/SYSV", b"[")  # torch counts holders
_DELETED = b" (deleted)"


@frozen
class InFile:
    """A piece of a file in memory."""

    path: str
    offset: int
    size: int
    writable: bool
    shared: bool  # what is written goes to the file
    file: tuple[bytes, int]  # its device and inode: under the same path there may be another soon

    def map_anew(self) -> tuple[mmap.mmap, int]:
        """Map it, from the page in which it begins. Gives also where in the map that is."""
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


@frozen
class _Area:
    start: int
    end: int
    rights: bytes
    offset: int
    device: bytes
    inode: int
    path: bytes

    @property
    def shared(self) -> bool:
        return self.rights[3:4] == b"s"


class Areas:
    """The memory of this process, as it is mapped: read when it is first asked for."""

    def __init__(self) -> None:
        self._areas: list[_Area] = []
        self._starts: list[int] = []

    def is_readable(self, address: int) -> bool:
        """Whether this process could read what is at an address when this first looked. (Not what
        is merely reserved.)"""
        if not self._areas:
            self._read()
        area = self._among(address)
        return area is not None and area.rights.startswith(b"r")

    def in_file(self, address: int, size: int) -> InFile | None:
        """Say which piece of a file is mapped at an address; None: it is not, or no longer what is
        there."""
        area = self._at(address)
        if area is None or address + size > area.end or not area.path.startswith(b"/"):
            return None
        if area.path.startswith(_NO_FILES) or area.path.endswith(_DELETED):
            return None
        if not _is_there(area) or (not area.shared and _is_changed(address)):
            return None
        offset = area.offset + address - area.start
        file = area.device, area.inode
        writable = area.rights[1:2] == b"w"
        return InFile(os.fsdecode(area.path), offset, size, writable, area.shared, file)

    def is_shared(self, address: int) -> bool:
        """Say whether other processes see what is written at an address, or might."""
        area = self._at(address)
        return area is not None and area.shared

    def _at(self, address: int) -> _Area | None:
        for _ in range(2):
            if (area := self._among(address)) is not None:
                return area
            self._read()  # for the first time; or it was mapped since
        return None

    def _among(self, address: int) -> _Area | None:
        place = bisect.bisect_right(self._starts, address) - 1
        return self._areas[place] if place >= 0 and address < self._areas[place].end else None

    def _read(self) -> None:
        self._areas = []
        with open("/proc/self/maps", "rb") as file:
            for line in file:
                if found := _AREA.match(line.rstrip(b"\n")):
                    start, end, rights, offset, device, inode, path = found.groups()
                    numbers = int(start, 16), int(end, 16)
                    self._areas.append(
                        _Area(*numbers, rights, int(offset, 16), device, int(inode), path)
                    )
        self._starts = [area.start for area in self._areas]


def _is_there(area: _Area) -> bool:
    """Say whether the file is still at its path."""
    try:
        there = os.stat(area.path)
    except OSError:  # removed, or of another namespace
        return False
    device = f"{os.major(there.st_dev):02x}:{os.minor(there.st_dev):02x}".encode()
    # (Some file systems tell another device there than here.)
    return there.st_ino == area.inode and (device == area.device or area.device.startswith(b"00:"))


def _is_changed(address: int) -> bool:
    """Whether somebody wrote to a private map: that is in no file. Where nobody can tell (gVisor
    has no such file), it counts as written to."""
    area = False
    with contextlib.suppress(OSError), open("/proc/self/smaps", "rb") as file:
        for line in file:
            if b"-" in line[:17] and (found := _AREA.match(line.rstrip())):
                area = int(found[1], 16) <= address < int(found[2], 16)
            elif area and line.startswith(b"Anonymous:"):
                return int(line.split()[1]) > 0
    return True
