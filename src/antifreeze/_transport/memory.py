"""Anonymous shared memory for one parcel: no name, no file system, gone with its last holder."""

from __future__ import annotations

import mmap
import os
from collections.abc import Sequence

ALIGNMENT = 64  # bytes; a cache line, and what the widest vector instructions like
_PADDING = memoryview(bytes(ALIGNMENT))
_PARTS_A_CALL = 512  # half of what the kernel takes (IOV_MAX)


def aligned(size: int) -> int:
    return -(-size // ALIGNMENT) * ALIGNMENT


def write_buffers(buffers: Sequence[memoryview]) -> int:
    """Copy buffers one after the other into new memory; give its descriptor.

    Raises OSError if the machine cannot give the memory. Written through the descriptor, not
    through a mapping: a lack of memory is then this error and never a bus error, and there is no
    page fault for each 4 KiB.
    """
    descriptor = os.memfd_create("antifreeze-parcel", os.MFD_CLOEXEC)
    try:
        parts: list[memoryview] = []
        for buffer in buffers:
            parts.append(buffer)
            if gap := aligned(buffer.nbytes) - buffer.nbytes:
                parts.append(_PADDING[:gap])
        _write_all(descriptor, parts)
    except BaseException:
        os.close(descriptor)
        raise
    return descriptor


def _write_all(descriptor: int, parts: list[memoryview]) -> None:
    for start in range(0, len(parts), _PARTS_A_CALL):
        pending = parts[start : start + _PARTS_A_CALL]
        written = os.writev(descriptor, pending)
        for part in pending:
            rest = part[min(written, part.nbytes) :]
            written = max(0, written - part.nbytes)
            while rest:  # a call writes 2 GiB at most
                rest = rest[os.write(descriptor, rest) :]


def map_buffers(descriptor: int, sizes: Sequence[int]) -> list[memoryview]:
    """Map the memory and give its buffers; they keep it alive. Closes the descriptor."""
    try:
        size = sum(aligned(n) for n in sizes)
        flags = mmap.MAP_SHARED | mmap.MAP_POPULATE  # one call instead of a fault for each page
        whole = memoryview(mmap.mmap(descriptor, size, flags=flags))
    finally:
        os.close(descriptor)
    views, offset = [], 0
    for n in sizes:
        views.append(whole[offset : offset + n])
        offset += aligned(n)
    return views
