"""Anonymous shared memory for one parcel: no name, no file system, gone with its last holder."""

from __future__ import annotations

import ctypes
import os
from collections.abc import Sequence

import torch

ALIGNMENT = 64  # bytes; a cache line, and what the widest vector instructions like
_PADDING = memoryview(bytes(ALIGNMENT))
# One call instead of a page fault for each 4 KiB (Linux 5.14; before, it fails and costs nothing).
_MADV_POPULATE_READ = 22
_libc = ctypes.CDLL(None)
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


def _read_all(descriptor: int, into: memoryview) -> None:
    at = 0
    while at < into.nbytes:
        count = os.preadv(descriptor, [into[at:]], at)
        if not count:
            raise EOFError(f"{into.nbytes - at} bytes of a parcel are missing")
        at += count


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
    """Map the memory and give its buffers; they keep it alive, without any descriptor."""
    size = sum(aligned(n) for n in sizes)
    # Not mmap.mmap: it keeps a copy of the descriptor as long as the mapping lives (before 3.13),
    # so that every batch a user keeps would cost one.
    try:
        storage = torch.UntypedStorage.from_file(f"/proc/self/fd/{descriptor}", True, size)
    except RuntimeError:  # no more mappings (vm.max_map_count), or no /proc: a copy will do
        whole = memoryview(bytearray(size))
        _read_all(descriptor, whole)
    else:
        address = storage.data_ptr()
        _libc.madvise(ctypes.c_void_p(address), ctypes.c_size_t(size), _MADV_POPULATE_READ)
        array = (ctypes.c_char * size).from_address(address)
        array._owner = storage  # type: ignore[attr-defined]
        whole = memoryview(array).cast("B")
    views, offset = [], 0
    for n in sizes:
        views.append(whole[offset : offset + n])
        offset += aligned(n)
    return views
