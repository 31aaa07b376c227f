"""The main process's side of its workers' slabs: where they are, and who still looks at them.

1. Each life has its own shelf of slabs, by slot. A slab is mapped when it first arrives.
2. A batch in a slab is watched by a weakref to its anchor. Its end may come in any thread, even in
   the middle of a garbage collection: it only puts a note in a queue, and takes no lock.
3. A fork puts a note in the same queue: the child keeps looking at what the loop keeps now.
"""

from __future__ import annotations

import errno
import os
import weakref
from collections import deque
from collections.abc import Sequence

from .._core.events import LeasesReturned, ProgramForked
from .._core.slab_leases import LeaseKey
from .descriptors import Descriptor
from .memory import Memory
from .worker_slabs import Anchor

LOST = "the memory of this batch could not be received"
_FORKED = ProgramForked()
_all: weakref.WeakSet[Returns] = weakref.WeakSet()


class _Watch(weakref.ref[Anchor]):
    __slots__ = ("key",)
    key: LeaseKey


class Returns:
    """Slabs that the loop has let go of, in the order in which it did."""

    def __init__(self) -> None:
        self._queue: deque[_Watch | LeaseKey | ProgramForked] = deque()
        self._watched: dict[LeaseKey, _Watch] = {}  # a weakref must live to tell
        _all.add(self)

    def watch(self, anchor: Anchor, key: LeaseKey) -> None:
        watch = _Watch(anchor, self._queue.append)
        watch.key = key
        self._watched[key] = watch

    def put(self, note: LeaseKey | ProgramForked) -> None:
        self._queue.append(note)

    def collect(self) -> Sequence[LeasesReturned | ProgramForked]:
        """Give what happened since the last call. Never waits."""
        queue = self._queue
        if not queue:
            return ()
        events: list[LeasesReturned | ProgramForked] = []
        leases: list[LeaseKey] = []
        while queue:
            note = queue.popleft()
            if isinstance(note, _Watch):
                leases.append(note.key)
                del self._watched[note.key]
            elif isinstance(note, LeaseKey):
                leases.append(note)
            else:  # what was returned before it must be told before it
                if leases:
                    events.append(LeasesReturned(tuple(leases)))
                    leases = []
                events.append(note)
        if leases:
            events.append(LeasesReturned(tuple(leases)))
        return events


class MappedSlabs:
    """The slabs of one life."""

    def __init__(self, seat: int, life: int, returns: Returns) -> None:
        self.seat, self.life, self._returns = seat, life, returns
        self._slabs: dict[int, Memory | OSError] = {}  # by slot, or why there is none
        self.lacking: set[int] = set()  # slots that need another slab: spoiled, or lost on its way

    def put(self, slot: int, descriptor: Descriptor | None, size: int) -> None:
        """Take a new slab; the one that was there before lives as long as batches in it."""
        if descriptor is None:
            self.spoil(slot)
            return
        try:
            self._slabs[slot] = Memory(descriptor.number, size)
            self.lacking.discard(slot)
        except OSError as error:
            self._slabs[slot] = error
            self.lacking.add(slot)
        finally:
            descriptor.close()

    def spoil(self, slot: int) -> None:
        """Take nothing more in the slab that a slot has; ask for another one until it comes."""
        self._slabs[slot] = OSError(errno.EMFILE, LOST)
        self.lacking.add(slot)

    def clear(self) -> None:
        """Let go of all slabs that no batch lies in."""
        self._slabs.clear()
        self.lacking.clear()

    def view(self, slot: int, generation: int) -> SlabView:
        memory = self._slabs.get(slot)
        if memory is None:
            memory = OSError(errno.EMFILE, LOST)
        key = LeaseKey(self.seat, self.life, slot, generation)
        return SlabView(memory, key, self._returns)


class SlabView:
    """The slab of one parcel, until it is opened."""

    __slots__ = ("_key", "_memory", "_returns")

    def __init__(self, memory: Memory | OSError, key: LeaseKey, returns: Returns) -> None:
        self._memory, self._key, self._returns = memory, key, returns

    def keep(self) -> Anchor:
        """Give the anchor to look at the batch through; when it dies the slab is returned."""
        if isinstance(self._memory, OSError):
            self.give_back()
            raise self._memory
        anchor = self._memory.anchor()
        self._returns.watch(anchor, self._key)
        return anchor

    def give_back(self) -> None:
        """Return the slab without a look at it."""
        self._returns.put(self._key)

    def look(self) -> memoryview:
        """Give the bytes of the whole slab, to be copied at once."""
        if isinstance(self._memory, OSError):
            raise self._memory
        return self._memory.view


def _note_fork() -> None:
    for returns in list(_all):
        returns.put(_FORKED)


# Twice: in between, another thread may let go of a batch, or receive one.
os.register_at_fork(before=_note_fork, after_in_parent=_note_fork)
