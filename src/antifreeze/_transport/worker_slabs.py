"""A worker's slabs: memory that it fills again and again, one batch at a time.

1. A slab belongs to a slot of the worker's leases. The main process lends slots; the worker makes
   the slab of a slot when a batch first needs it, and another one when a batch needs more.
2. A batch is begun in the slab of its lease, may be collated straight into it, and is sealed when
   all of it is placed.
3. A slab is not filled again while anything in this process still looks at it: a collate function
   may keep what it returned.
4. The main process learns of a new slab from the first parcel in it, which carries a descriptor.
"""

from __future__ import annotations

import contextlib
import ctypes
import errno
import threading
import weakref

import torch

from .._core.frozen_values import record
from .._linux.available_memory import available
from .descriptors import Descriptor
from .memory import PAGE, Memory, MemoryShort, aligned, memmove, reserve, teach_allocator
from .tensors import look_at

STEPS = 8  # slab sizes between two powers of two: at most an eighth is wasted
SHRINK_BY = 4  # a slab this many times larger than recent batches is given up
SHRINK_FROM = 1024 * 1024  # bytes; smaller ones may stay
TEACH_FROM = 128 * 1024  # bytes; what the C library keeps without having learnt anything
_FORGET = 1 / 64  # how fast the size of a large batch is forgotten, a batch

Anchor = ctypes.Array[ctypes.c_char]


def slab_size(needed: int) -> int:
    """Round up to one of a few sizes, so that batches of changing size fit the same slabs."""
    step = max(PAGE, (1 << max(0, needed.bit_length() - 1)) // STEPS)
    return -(-needed // step) * step


@record
class Slab:
    """One piece of memory, with a descriptor until the main process has it."""

    memory: Memory
    descriptor: Descriptor | None
    looked_at: weakref.ref[Anchor] | None = None

    @classmethod
    def make(cls, needed: int) -> Slab:
        size = slab_size(needed)
        descriptor = Descriptor(reserve(size))
        try:
            return cls(Memory(descriptor.number, size), descriptor)
        except OSError as error:
            if error.errno != errno.ENOMEM:
                raise
            raise MemoryShort(size, available()) from error

    def in_use(self) -> bool:
        return self.looked_at is not None and self.looked_at() is not None

    def take_descriptor(self) -> Descriptor | None:
        """Give the descriptor to the caller; None if it was given before."""
        descriptor, self.descriptor = self.descriptor, None
        return descriptor


class Arena:
    """All slabs of this worker, and the one that the present batch goes to."""

    def __init__(self) -> None:
        self._slabs: dict[int, Slab] = {}
        self._slot = -1
        self._owner = 0  # the thread that collates the present batch, while it does
        self._anchor: Anchor | None = None
        self._wanted = 0.0  # bytes; the largest batch of late, slowly forgotten
        self._taught = TEACH_FROM  # bytes; the largest batch ever
        self.used = 0  # bytes of the present batch in its slab

    def begin(self, slot: int, renewed: bool) -> None:
        """Turn to the slab of a slot, for a new batch."""
        self._slot, self.used, self._anchor, self._owner = slot, 0, None, 0
        slab = self._slabs.get(slot)
        if slab is None:
            return
        too_large = slab.memory.size > max(SHRINK_FROM, SHRINK_BY * self._wanted)
        if renewed or too_large or slab.in_use():
            self.give_up(slot)

    def open(self) -> None:
        """Let this thread collate the batch into the slab, until it is sealed."""
        self._owner = threading.get_ident()

    def again(self) -> None:
        """Begin the present batch anew."""
        self.begin(self._slot, renewed=False)

    def take(self, shape: tuple[int, ...], dtype: torch.dtype, size: int) -> torch.Tensor | None:
        """Give an empty tensor in the slab, or None if there is no room for it.

        None also where somebody collates on their own: in a dataset, or a thread of it.
        """
        if self._owner != threading.get_ident():
            return None
        slab = self._slabs.get(self._slot)
        if slab is None:
            slab = self._slabs[self._slot] = self._make(size)
        if self.used + size > slab.memory.size:
            return None
        if self._anchor is None:
            self._anchor = slab.memory.anchor()
            slab.looked_at = weakref.ref(self._anchor)
        room = look_at(self._anchor, self.used, dtype, shape)
        self.used += aligned(size)
        return room

    def offset_of(self, address: int, size: int) -> int | None:
        """Say where in the present batch's slab this memory lies, or None."""
        if not self.used:
            return None  # as quick as can be: it is asked for every tensor
        start = self._slabs[self._slot].memory.address
        inside = start <= address and address + size <= start + self.used
        return address - start if inside else None

    def put(self, address: int, size: int) -> int:
        """Have these bytes in the slab, if they are not there yet, and say where."""
        offset = self.offset_of(address, size)
        if offset is None:
            memory, offset = self.make_room(aligned(size)), self.used
            memmove(memory.address + offset, address, size)
            self.used += aligned(size)
        return offset

    def make_room(self, size: int) -> Memory:
        """Have room for so many bytes more than are used; what is there stays at its offset."""
        needed = self.used + size
        slab = self._slabs.get(self._slot)
        if slab is None or needed > slab.memory.size:
            larger = self._make(needed)
            if slab is not None:
                memmove(larger.memory.address, slab.memory.address, self.used)
            self._slabs[self._slot] = slab = larger
        return slab.memory

    def _make(self, needed: int) -> Slab:
        """Make a slab as large as batches were of late, or, if that cannot be had, as needed."""
        if needed > self._taught:
            self._taught = needed
            teach_allocator(needed)
        if self._wanted > needed:
            with contextlib.suppress(MemoryShort):
                return Slab.make(int(self._wanted))
        return Slab.make(needed)

    def filled(self) -> Memory:
        """Give the memory that the present batch lies in."""
        return self._slabs[self._slot].memory

    def seal(self, used: int) -> Slab | None:
        """End the batch and give its slab, if any of it is used.

        If somebody here still looks at it, they keep it, and a copy is given: the loop may write
        to its batch.
        """
        slot, self._slot, self._anchor, self._owner = self._slot, -1, None, 0
        if not used:
            return None
        self._wanted = max(used, self._wanted * (1 - _FORGET))
        slab = self._slabs[slot]
        if slab.in_use():
            copy = Slab.make(slab.memory.size)
            memmove(copy.memory.address, slab.memory.address, used)
            self._slabs[slot] = slab = copy
        return slab

    def abort(self) -> None:
        """Forget the present batch."""
        self._slot, self._anchor, self._owner = -1, None, 0

    @property
    def size(self) -> int:
        return sum(slab.memory.size for slab in self._slabs.values())

    def __len__(self) -> int:
        return len(self._slabs)

    def __repr__(self) -> str:
        return f"<Arena {len(self)} slabs, {self.size} bytes>"

    def give_up(self, slot: int) -> None:
        """Make a new slab for this slot next time."""
        self._slabs.pop(slot, None)
