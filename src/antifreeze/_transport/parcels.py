"""A loaded batch in transit: its header, its pickle, its memory."""

from __future__ import annotations

import errno
import os
import struct
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from .._core.accounts import Timings
from .._core.events import Outcome
from .descriptors import Descriptor
from .exceptions import PackedException, rebuild_exception
from .framing import Frame, Kind, prefix
from .memory import map_buffers, write_buffers
from .packing import Packed, find_grad, outside_sizes, unpack

HEADER = struct.Struct("<QB?5d")
OUTCOMES = (Outcome.LOADED, Outcome.FAILED, Outcome.ENDED)


def encode(
    number: int, outcome: Outcome, timings: Timings, packed: Packed | None
) -> tuple[list[bytes | memoryview], int | None]:
    """Give the parts of a parcel's frame, and the descriptor that travels along, if any.

    The caller owns the descriptor. Where the machine has no memory or descriptor to give, all
    buffers travel in the message: slower, but they travel.
    """
    descriptor = None
    if packed is not None and (outside := packed.outside()):
        try:
            descriptor = write_buffers(outside)
        except OSError:
            packed.keep_all_inside()
    body = [] if packed is None else packed.message()
    header = HEADER.pack(
        number,
        OUTCOMES.index(outcome),
        packed is not None and packed.history_cut,
        timings.fetch_s,
        timings.collate_s,
        timings.pack_s,
        timings.begun_at,
        timings.sealed_at,
    )
    length = len(header) + sum(memoryview(part).nbytes for part in body)
    count = 0 if descriptor is None else 1
    return [prefix(Kind.PARCEL, length, count), header, *body], descriptor


@contextmanager
def closing(descriptor: int | None) -> Iterator[None]:
    try:
        yield
    finally:
        if descriptor is not None:
            os.close(descriptor)


@dataclass(slots=True)
class ReceivedParcel:
    """A parcel as it came. Opening it gives the batch, once, or raises the error it holds."""

    number: int
    outcome: Outcome
    timings: Timings
    history_cut: bool
    _message: memoryview
    _descriptor: Descriptor | None
    _lost: bool

    @classmethod
    def decode(cls, frame: Frame) -> ReceivedParcel:
        number, outcome, cut, *seconds = HEADER.unpack_from(frame.body)
        message = frame.body[HEADER.size :]
        timings = Timings(*seconds)
        return cls(number, OUTCOMES[outcome], timings, cut, message, frame.descriptor, frame.lost)

    def open(self) -> Any:
        if self._lost:
            raise OSError(errno.EMFILE, "the memory of this batch could not be received")
        outside: list[memoryview] = []
        if self._descriptor is not None:
            outside = map_buffers(self._descriptor.number, outside_sizes(self._message))
            self.drop()
        content = unpack(self._message, outside)
        if self.outcome is Outcome.FAILED:
            if not isinstance(content, PackedException):
                raise TypeError(f"a failed parcel holds {type(content)}")
            raise rebuild_exception(content)
        return content

    def remark(self, batch: Any) -> str | None:
        """Say what the user should know about this batch, or None."""
        if not self.history_cut:
            return None
        return (
            f"antifreeze: {find_grad(batch) or 'the batch'} was computed from tensors that"
            " require grad, in a worker. Its values arrived; its autograd history stays in the"
            " worker, so no gradient flows back through it. Compute it in the training loop, or"
            " detach() it in the dataset to say that this is meant."
        )

    def drop(self) -> None:
        """Give back what an unopened parcel holds."""
        if self._descriptor is not None:
            self._descriptor.close()
            self._descriptor = None
