"""Anonymous shared memory for one parcel: no name, no file system, gone with its last holder."""

from __future__ import annotations

import mmap
import os
from collections.abc import Sequence

ALIGNMENT = 64  # bytes; a cache line, and what the widest vector instructions like


def aligned(size: int) -> int:
    return -(-size // ALIGNMENT) * ALIGNMENT


def write_buffers(buffers: Sequence[memoryview]) -> int:
    """Copy buffers one after the other into new memory; give its descriptor.

    Raises OSError if the machine cannot give the memory. It is reserved before it is touched, so
    that a lack of it is this error and never a bus error.
    """
    size = sum(aligned(buffer.nbytes) for buffer in buffers)
    descriptor = os.memfd_create("antifreeze-parcel", os.MFD_CLOEXEC)
    try:
        os.posix_fallocate(descriptor, 0, size)
        with mmap.mmap(descriptor, size) as memory:
            offset = 0
            for buffer in buffers:
                memory[offset : offset + buffer.nbytes] = buffer
                offset += aligned(buffer.nbytes)
    except BaseException:
        os.close(descriptor)
        raise
    return descriptor


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
