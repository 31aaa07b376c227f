"""Messages on a stream: a length, a kind, and whether a descriptor travels along.

1. A frame is `PREFIX` (length of the body, kind, number of descriptors) and the body.
2. A descriptor rides on the first byte of its frame, so they arrive in the order of the frames.
3. Reading never fails on a partial frame; it waits for the rest.
"""

from __future__ import annotations

import struct
from collections import deque
from collections.abc import Iterator
from enum import IntEnum

from .._core.frozen_values import message
from .descriptors import Descriptor

PREFIX = struct.Struct("<QBB")
_SIZE = PREFIX.size
CHUNK = 64 * 1024  # bytes a read; a larger buffer would be mapped and faulted in anew each time


class Kind(IntEnum):
    # from the main process
    TICKETS = 1
    BEGIN_EPOCH = 2
    STOP = 3
    EXPLAIN = 4  # what has grown in you?
    # from a worker
    READY = 16
    EPOCH_BEGUN = 17
    PARCELS = 18
    NOTICED = 19
    UNFIT = 20  # it cannot open its job
    OPENED = 21  # it has
    NEEDS_CLEAN = 23  # what it was asked for cannot be done in a fork of the main process
    LEFT = 22  # nothing of the user's runs in it any more, and it holds no file: it ends now


# What makes the tickets before it void.
OVERTAKES = frozenset({Kind.BEGIN_EPOCH, Kind.STOP})
_KINDS = {int(kind): kind for kind in Kind}


@message
class Frame:
    kind: Kind
    body: memoryview
    descriptor: Descriptor | None = None
    lost: bool = False  # a descriptor was announced and could not be received


def prefix(kind: Kind, length: int, descriptors: int = 0) -> bytes:
    return PREFIX.pack(length, kind, descriptors)


class FrameReader:
    """Cut a stream of bytes into frames. Most come whole; of others the parts are collected."""

    def __init__(self) -> None:
        self._head = bytearray()
        self._body: bytearray | None = None
        self._filled = 0
        self._kind = Kind.STOP
        self._carries = 0
        self._descriptors: deque[Descriptor] = deque()

    def receive_into(self) -> memoryview | None:
        """Give the memory where the next bytes belong, if a body is under way."""
        if self._body is None:
            return None
        return memoryview(self._body)[self._filled :]

    def advance(self, count: int) -> Iterator[Frame]:
        """Say that `count` bytes were received into `receive_into`."""
        self._filled += count
        yield from self._complete()

    def feed(self, data: bytes, descriptors: list[Descriptor]) -> Iterator[Frame]:
        """Take bytes as they came and yield every frame that is now whole."""
        self._descriptors.extend(descriptors)
        view = memoryview(data)
        while view:
            if self._body is None and not self._head and len(view) >= _SIZE:
                length, kind, carries = PREFIX.unpack_from(view)
                end = _SIZE + length
                if len(view) >= end:
                    yield self._frame(_KINDS[kind], view[_SIZE:end], carries)
                    view = view[end:]
                    continue
            if self._body is None:
                missing = _SIZE - len(self._head)
                self._head += view[:missing]
                view = view[missing:]
                if len(self._head) < _SIZE:
                    return
                length, kind, self._carries = PREFIX.unpack(self._head)
                self._kind = _KINDS[kind]
                self._head.clear()
                self._body, self._filled = bytearray(length), 0
            taken = min(len(view), len(self._body) - self._filled)
            self._body[self._filled : self._filled + taken] = view[:taken]
            self._filled += taken
            view = view[taken:]
            yield from self._complete()

    def _complete(self) -> Iterator[Frame]:
        if self._body is None or self._filled < len(self._body):
            return
        body, self._body = memoryview(self._body), None
        yield self._frame(self._kind, body, self._carries)

    def _frame(self, kind: Kind, body: memoryview, carries: int) -> Frame:
        if not carries:
            return Frame(kind, body)
        descriptor = self._descriptors.popleft() if self._descriptors else None
        return Frame(kind, body, descriptor, descriptor is None)
