"""Anonymous shared memory: no name, no file system, gone with its last holder.

1. Memory is reserved before anybody writes to it, so that a machine without memory is an error
   with figures and never a bus error; and it is sealed against shrinking.
2. A mapping needs no descriptor once it exists.
"""

from __future__ import annotations

import ctypes
import errno
import fcntl
import os

import torch

from .._linux import libc
from .._linux.available_memory import Available, available
from .._linux.open_descriptors import own_path

ALIGNMENT = 64  # bytes; a cache line, and what the widest vector instructions like
PAGE = 4096
NAME = "antifreeze-slab"
_NO_MEMORY = (errno.ENOSPC, errno.ENOMEM, errno.EFBIG, errno.EDQUOT)
_LEARNT_AT_MOST = 32 * 1024 * 1024 - 2 * PAGE  # glibc's own limit, its header in it
_STRING_AT_LIMIT = 1 << 31

memmove = ctypes.memmove


class MemoryShort(Exception):
    """The machine, its container or a limit of this process does not give so much memory."""

    def __init__(self, needed: int, left: Available) -> None:
        super().__init__(needed, left)
        self.needed = needed
        self.left = left


def read_bytes(address: int, size: int) -> bytes:
    """Copy bytes out of memory. (`ctypes.string_at` takes sizes below 2 GiB only.)"""
    if size < _STRING_AT_LIMIT:
        return ctypes.string_at(address, size)
    return bytes((ctypes.c_char * size).from_address(address))


def aligned(size: int) -> int:
    return -(-size // ALIGNMENT) * ALIGNMENT


def reserve(size: int) -> int:
    """Make memory of this size and give its descriptor.

    Raises MemoryShort if the memory cannot be had, another OSError if a descriptor cannot.
    """
    left = available()
    if size > left.bytes:
        raise MemoryShort(size, left)
    descriptor = os.memfd_create(NAME, os.MFD_CLOEXEC | os.MFD_ALLOW_SEALING)
    try:
        os.posix_fallocate(descriptor, 0, size)
        fcntl.fcntl(descriptor, fcntl.F_ADD_SEALS, fcntl.F_SEAL_SHRINK | fcntl.F_SEAL_GROW)
    except OSError as error:
        os.close(descriptor)
        if error.errno in _NO_MEMORY:
            raise MemoryShort(size, left) from error
        raise
    return descriptor


def teach_allocator(size: int) -> None:
    """Have the C library keep as much freed memory at hand as batches of this size need.

    glibc learns that from the large blocks a program frees. Where batches are collated in slabs it
    sees single samples only, and gives the memory of each batch's samples back to the kernel, to
    have it faulted in again for the next batch. So it is shown a block as large as a batch. (To
    set its thresholds by `mallopt` would end its learning, and larger blocks may come.)
    """
    libc.allocate_and_free(min(size, _LEARNT_AT_MOST))


class Memory:
    """A mapping of reserved memory. Whoever looks at it through an `anchor` keeps it alive."""

    __slots__ = ("_storage", "_type", "address", "size", "view")

    def __init__(self, descriptor: int, size: int) -> None:
        # Not mmap.mmap: it keeps a copy of the descriptor as long as the mapping lives (before
        # Python 3.13). The path is opened, mapped and closed again.
        try:
            self._storage = torch.UntypedStorage.from_file(own_path(descriptor), True, size)
        except RuntimeError as error:  # torch tells the number of the error in its text
            numbers = (errno.ENOMEM, errno.EMFILE, errno.ENFILE)
            known = [number for number in numbers if f"({number})" in str(error)]
            raise OSError(known[0] if known else errno.EIO, str(error)) from error
        self.address: int = self._storage.data_ptr()
        self.size = size
        self._type = ctypes.c_char * size
        libc.populate(self.address, size)
        self.view = memoryview(self.anchor()).cast("B")  # for our own use; keeps no lease

    def anchor(self) -> ctypes.Array[ctypes.c_char]:
        """Give a new object over the whole memory, to be looked through and watched by weakref.

        Not a slice of a memoryview: what is made from one keeps the buffer behind it and lets the
        slice go, so that its end says nothing.
        """
        array = self._type.from_address(self.address)
        array._owner = self._storage  # type: ignore[attr-defined]
        return array

    def __repr__(self) -> str:
        return f"<Memory {self.size} bytes at {self.address:#x}>"
