"""Memory that lies in a file: found by its address, and mapped anew in another process."""

from __future__ import annotations

import mmap
import os
import re

from .._core.messages import frozen

_AREA = re.compile(rb"^([0-9a-f]+)-([0-9a-f]+) (\S{4}) ([0-9a-f]+) \S+ (\d+) +(/.*)$")
_ANONYMOUS = (b"/memfd:", b"/dev/zero", b"/dev/shm/torch_")  # the last: torch counts its holders
_DELETED = b" (deleted)"


@frozen
class InFile:
    """A piece of a file in memory."""

    path: str
    offset: int
    size: int
    writable: bool
    shared: bool  # what is written goes to the file

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


def in_file(address: int, size: int) -> InFile | None:
    """Say which piece of a file is mapped at an address; None: it is not, or not what is there."""
    area = _area(address, b"/proc/self/maps")
    if area is None:
        return None
    start, end, rights, offset, inode, path = area
    if address + size > end or path.startswith(_ANONYMOUS):
        return None
    try:
        there = os.stat(path)
    except OSError:  # removed, or of another namespace
        return None
    shared = rights[3:4] == b"s"
    if there.st_ino != inode or (not shared and is_changed(address)):
        return None
    return InFile(os.fsdecode(path), offset + address - start, size, rights[1:2] == b"w", shared)


def is_changed(address: int) -> bool:
    """Say whether somebody wrote to a private map: that is in no file."""
    area = False
    with open("/proc/self/smaps", "rb") as file:
        for line in file:
            if b"-" in line[:17] and (found := _AREA.match(line.rstrip())):
                area = int(found[1], 16) <= address < int(found[2], 16)
            elif area and line.startswith(b"Anonymous:"):
                return int(line.split()[1]) > 0
    return True


def _area(address: int, source: bytes) -> tuple[int, int, bytes, int, int, bytes] | None:
    with open(source, "rb") as file:
        for line in file:
            found = _AREA.match(line.rstrip(b"\n"))
            if found and int(found[1], 16) <= address < int(found[2], 16):
                path = found[6]
                if path.endswith(_DELETED):
                    return None
                numbers = int(found[1], 16), int(found[2], 16)
                return (*numbers, found[3], int(found[4], 16), int(found[5]), path)
    return None
