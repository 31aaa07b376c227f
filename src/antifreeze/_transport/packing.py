"""From a batch to bytes, in the thread that made the batch, so that a failure is its error.

A packed object is a pickle (protocol 5) and the large buffers it refers to. Small ones travel in
the message itself; the rest in one piece of anonymous memory.
"""

from __future__ import annotations

import io
import pickle
import struct
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import torch

from .tensors import reduce_storage, reduce_tensor
from .words import said, shown

INLINE_BUFFER_BYTES = 64 * 1024  # a smaller buffer is copied: a view would keep the whole parcel
INLINE_TOTAL_BYTES = 192 * 1024  # what a socket takes without blocking (net.core.wmem_default)

COUNTS = struct.Struct("<QQ")  # bytes of the pickle; number of buffers


class Unpackable(Exception):
    """This object cannot cross a process boundary; `__cause__` says why."""


@dataclass(slots=True)
class Packed:
    """A pickle and its buffers. `inline` says for each buffer whether the message carries it."""

    pickled: bytes
    history_cut: bool = False  # a tensor of an autograd graph came along; the graph did not
    buffers: list[memoryview] = field(default_factory=list)
    inline: list[bool] = field(default_factory=list)

    def outside(self) -> list[memoryview]:
        """Give the buffers that do not travel in the message."""
        return [b for b, inside in zip(self.buffers, self.inline, strict=True) if not inside]

    def keep_all_inside(self) -> None:
        self.inline = [True] * len(self.buffers)

    def put_pickle_outside(self) -> None:
        """Let the pickle travel like a buffer, the first one; an empty pickle says so."""
        self.buffers.insert(0, memoryview(self.pickled))
        self.inline.insert(0, False)
        self.pickled = b""

    def message(self) -> list[bytes | memoryview]:
        """Give the parts of the message, to be joined or sent one after the other."""
        sizes = [b.nbytes for b in self.buffers]
        count = len(sizes)
        table = struct.pack(f"<{count}Q{count}?", *sizes, *self.inline)
        inside = [b for b, here in zip(self.buffers, self.inline, strict=True) if here]
        return [COUNTS.pack(len(self.pickled), count), table, self.pickled, *inside]


class _Packer(pickle.Pickler):
    history_cut = False

    def reducer_override(self, obj: Any) -> Any:
        if isinstance(obj, torch.Tensor):
            if obj.grad_fn is not None:
                self.history_cut = True
            reduced = reduce_tensor(obj)
            return NotImplemented if reduced is None else reduced
        if isinstance(obj, torch.UntypedStorage):
            stored = reduce_storage(obj)
            return NotImplemented if stored is None else stored
        return NotImplemented


def pack(obj: Any) -> Packed:
    """Pickle an object with its buffers apart. Raises Unpackable, whatever the pickling raised."""
    buffers: list[pickle.PickleBuffer] = []
    stream = io.BytesIO()
    try:
        packer = _Packer(stream, protocol=5, buffer_callback=buffers.append)
        packer.dump(obj)
        raw = [buffer.raw() for buffer in buffers]
    except Exception as error:
        raise Unpackable(said(error)) from error
    inline = [view.nbytes < INLINE_BUFFER_BYTES for view in raw]
    if (
        sum(view.nbytes for view, here in zip(raw, inline, strict=True) if here)
        > INLINE_TOTAL_BYTES
    ):
        inline = [view.nbytes == 0 for view in raw]
    packed = Packed(stream.getvalue(), packer.history_cut, raw, inline)
    if len(packed.pickled) > INLINE_TOTAL_BYTES:
        packed.put_pickle_outside()
    return packed


def unpack(message: memoryview, outside: Sequence[memoryview] = ()) -> Any:
    """Rebuild the object. Its arrays and tensors look at `message` and `outside`, uncopied."""
    pickled_size, count = COUNTS.unpack_from(message)
    sizes, inline = _read_table(message, count)
    at = COUNTS.size + 9 * count
    pickled: memoryview = message[at : at + pickled_size]
    at += pickled_size
    rest = iter(outside)
    buffers: list[memoryview] = []
    for size, inside in zip(sizes, inline, strict=True):
        if inside:
            # A buffer of its own: a kept tensor must not keep the whole message.
            buffers.append(memoryview(bytearray(message[at : at + size])))
            at += size
        else:
            buffers.append(next(rest))
    if not pickled_size:
        pickled = buffers.pop(0)
    return pickle.loads(pickled, buffers=buffers)


def outside_sizes(message: memoryview) -> list[int]:
    """Read from a message the sizes of the buffers that travel in memory."""
    _, count = COUNTS.unpack_from(message)
    return [size for size, here in zip(*_read_table(message, count), strict=True) if not here]


def _read_table(message: memoryview, count: int) -> tuple[tuple[int, ...], tuple[bool, ...]]:
    values = struct.unpack_from(f"<{count}Q{count}?", message, COUNTS.size)
    return values[:count], values[count:]


def find_unpackable(obj: Any, path: str = "batch", *, budget: int = 200) -> tuple[str, Any]:
    """Find what in a batch cannot be packed: the path to it, and the thing itself.

    Tries at most `budget` parts; stops at the smallest one that fails on its own.
    """
    while budget > 0:
        for step, part in _parts(obj):
            budget -= 1
            try:
                pack(part)
            except Unpackable:
                path, obj = path + step, part
                break
            if budget <= 0:
                return path, obj
        else:
            return path, obj
    return path, obj


def find_grad(obj: Any, path: str = "batch", *, depth: int = 8) -> str | None:
    """Find a tensor that requires grad: the path to it, or None. Looks `depth` levels deep."""
    if isinstance(obj, torch.Tensor):
        return path if obj.requires_grad else None
    if depth > 0:
        for step, part in _parts(obj):
            if (found := find_grad(part, path + step, depth=depth - 1)) is not None:
                return found
    return None


def _parts(obj: Any) -> list[tuple[str, Any]]:
    if isinstance(obj, dict):
        return [(f"[{shown(key)}]".replace("'", '"'), value) for key, value in obj.items()]
    if isinstance(obj, tuple) and hasattr(obj, "_fields"):
        return [(f".{name}", getattr(obj, name)) for name in obj._fields]
    if isinstance(obj, list | tuple | set | frozenset):
        return [(f"[{place}]", value) for place, value in enumerate(obj)]
    if isinstance(getattr(obj, "__dict__", None), dict) and not isinstance(obj, type):
        return [(f".{name}", value) for name, value in vars(obj).items()]
    return []
