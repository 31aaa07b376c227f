"""What is sent to a clean process, as memory: laid out here, mapped there.

A stream of pickled things, and beside it large buffers, each on pages of its own: copied once, and
mapped by all who read it. With it travel the descriptors that it needs.
"""

from __future__ import annotations

import io
import mmap
import os
import pickle
import socket
from collections.abc import Sequence
from typing import Any

from ..._core.frozen_values import frozen
from ..._core.limits import Bounds
from ..._linux.available_memory import in_words
from ..._linux.clock import monotonic
from ..._transport.descriptors import Descriptor
from ..._transport.memory import PAGE, reserve
from ..starting.fd_passing import send_many
from . import user_code
from .classes import keyed_tables
from .kinds.float_identities import Unpickler

PIECE = 256 * 1024  # bytes that are compared at once: what the processor's cache takes
BESIDE = 32 * 1024  # bytes: buffers from this size on travel beside the stream


class CostsTooMuch(Exception):
    """It could be sent; a fork costs less."""


@frozen
class Payload:
    """Pickled things in memory of their own, and the descriptors they need."""

    memory: Descriptor
    riders: Sequence[Descriptor]
    bytes: int
    seconds: float  # of processor time, to pack it
    each_opens: bool  # each life, not its zygote
    is_faithful: bool = True  # else it is what torch's loader would send

    def send(self, channel: socket.socket) -> None:
        """Send it. Raises SourceGone."""
        send_many(channel, [each.number for each in (self.memory, *self.riders)])

    def close(self) -> None:
        for each in (self.memory, *self.riders):
            each.close()

    def is_as(self, stream: Stream, riders: Sequence[Descriptor]) -> bool:
        """Whether this would be sent again: the same bytes, and the same descriptors beside."""
        if [_identity(each.number) for each in self.riders] != [
            _identity(each.number) for each in riders
        ]:
            return False
        with mmap.mmap(self.memory.number, 0, prot=mmap.PROT_READ) as mapped:
            return stream.is_in(mapped)


class Unpacking:
    """The things of a payload, one after the other, in the process that gets it."""

    def __init__(self, memory: int, *riders: int) -> None:
        """Map the memory: copied, page by page, where somebody writes to it, and only there."""
        Rider.descriptors[:] = riders
        self._came = {_identity(each) for each in riders}
        mapped = mmap.mmap(memory, 0, flags=mmap.MAP_PRIVATE)
        os.close(memory)
        view = memoryview(mapped)
        length = int.from_bytes(view[:8], "little")
        pickled, beside, self.each_opens = pickle.loads(view[8 : 8 + length])
        buffers = []
        for offset, size, readonly in beside:
            buffer = view[offset : offset + size]
            buffers.append(buffer.toreadonly() if readonly else buffer)
        offset, size = pickled
        stream = io.BytesIO(view[offset : offset + size])
        self._unpickler = Unpickler(stream, buffers=buffers)

    def next(self) -> Any:
        return self._unpickler.load()

    def brought(self, descriptor: int) -> bool:
        """Say whether a descriptor came along. (Not by its number, which may be another's now.)"""
        return _identity(descriptor) in self._came

    def install_code(self) -> None:
        """Have the program's own code, which comes last, be found by name; then check the tables
        that are keyed by its objects. Raises TypeError for one that does not find its keys."""
        while batch := self.next():
            user_code.install(batch)
        keyed_tables.check(self.next())
        del self._unpickler  # it remembers, and so keeps, all that it has made


def _identity(descriptor: int) -> tuple[int, int]:
    status = os.fstat(descriptor)
    return status.st_dev, status.st_ino


class Stream:
    """Where a pickler writes, within bounds; and the buffers beside it."""

    def __init__(self, bounds: Bounds) -> None:
        self._bounds = bounds
        self._give_up = None if bounds.seconds is None else monotonic() + bounds.seconds
        self._pickled = io.BytesIO()
        self._beside: list[memoryview] = []
        self._bytes_beside = 0

    def write(self, data: Any) -> int:
        written = self._pickled.write(data)
        self._check()
        return written

    def put_beside(self, buffer: pickle.PickleBuffer) -> bool:
        """Take a buffer that is worth it. Say whether it must go into the stream instead."""
        view = buffer.raw()
        if len(view) < BESIDE:
            return True
        self._beside.append(view)
        self._bytes_beside += len(view)
        self._check()
        return False

    def is_in(self, mapped: mmap.mmap) -> bool:
        """Whether this is what was laid out in some memory."""
        length = int.from_bytes(mapped[:8], "little")
        (start, size), beside, _ = pickle.loads(mapped[8 : 8 + length])
        buffers = [(len(buffer), buffer.readonly) for buffer in self._beside]
        if buffers != [(size, readonly) for _, size, readonly in beside]:
            return False
        places = [(start, size), *((start, size) for start, size, _ in beside)]
        mine = [self._pickled.getbuffer(), *self._beside]
        if size != len(mine[0]):
            return False
        return all(
            _is_same(mapped, start, buffer) for (start, _), buffer in zip(places, mine, strict=True)
        )

    def lay_out(self, *, each_opens: bool) -> tuple[Descriptor, int]:
        """Put everything into memory of its own: a header, the stream, and each buffer on pages of
        its own. Gives its size, too."""
        pickled = self._pickled.getbuffer()
        header_room = 256 + 64 * len(self._beside)
        stream = (_whole_pages(8 + header_room), len(pickled))
        end = _whole_pages(sum(stream))
        beside = []
        for buffer in self._beside:
            beside.append((end, len(buffer), buffer.readonly))
            end = _whole_pages(end + len(buffer))
        header = pickle.dumps((stream, beside, each_opens))
        assert len(header) <= header_room
        memory = Descriptor(reserve(end))
        _write_at(memory.number, len(header).to_bytes(8, "little") + header, 0)
        _write_at(memory.number, pickled, stream[0])
        for (start, _, _), buffer in zip(beside, self._beside, strict=True):
            _write_at(memory.number, buffer, start)
        return memory, end

    def _check(self) -> None:
        bounds, pickled = self._bounds, self._pickled.tell()
        if bounds.pickled_bytes is not None and pickled > bounds.pickled_bytes:
            raise CostsTooMuch(f"more than {in_words(bounds.pickled_bytes)} have to be pickled")
        if bounds.bytes is not None and pickled + self._bytes_beside > bounds.bytes:
            raise CostsTooMuch(f"it is larger than {in_words(bounds.bytes)}")
        if self._give_up is not None and monotonic() > self._give_up:
            raise CostsTooMuch(f"sending it takes more than {bounds.seconds:g} s")


def _is_same(mapped: mmap.mmap, start: int, buffer: memoryview) -> bool:
    """Compare piece by piece, as bytes: a copy of a piece takes less than a look at each item."""
    for at in range(0, len(buffer), PIECE):
        piece = bytes(buffer[at : at + PIECE])
        if mapped[start + at : start + at + len(piece)] != piece:
            return False
    return True


def _whole_pages(size: int) -> int:
    return -(-size // PAGE) * PAGE


def _write_at(descriptor: int, data: Any, offset: int) -> None:
    view = memoryview(data).cast("B")
    while len(view):
        written = os.pwrite(descriptor, view, offset)
        view, offset = view[written:], offset + written


class Rider:
    """Stands for a descriptor; where it is unpickled, gives the one that came with the message."""

    descriptors: list[int] = []

    def __init__(self, place: int) -> None:
        self._place = place

    def detach(self) -> int:
        return self.descriptors[self._place]


class Carrier:
    """What multiprocessing asks, while something is pickled, how a descriptor gets to the child."""

    DupFd = Rider

    def __init__(self) -> None:
        self.riders: list[Descriptor] = []

    def duplicate_for_child(self, descriptor: int) -> int:
        """Keep one of our own: whoever gave it may be gone when all is packed."""
        self.riders.append(Descriptor(os.dup(descriptor)))
        return len(self.riders) - 1

    def clear(self) -> None:
        """Close what was kept: nothing of it is sent."""
        for each in self.riders:
            each.close()
        self.riders.clear()
