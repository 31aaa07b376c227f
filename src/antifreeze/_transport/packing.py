"""From a batch to bytes, in the thread that made the batch, so that a failure is its error.

1. A packed batch is a skeleton (a pickle, protocol 5), a table of the tensors and buffers in it,
   and their bytes.
2. Small buffers travel in the message. They are copied out of it at the other end, so that a loop
   that keeps its labels does not keep the images that came with them.
3. Everything else lies in the slab of the batch: where collating put it, or copied there.
"""

from __future__ import annotations

import contextlib
import dataclasses
import io
import pickle
from dataclasses import replace
from typing import Any

import torch

from .._core.frozen_values import record
from .._linux.available_memory import available
from .._reporting.formatting import said, shown
from .memory import MemoryShort, aligned, memmove, read_bytes
from .tensor_views import View, is_whole, keeps_holes, overlap, rebuild_view, shared_views
from .tensors import (
    Description,
    byte_size,
    describe,
    describe_plain,
    is_strided,
    reduce_storage,
    reduce_tensor,
)
from .worker_slabs import Arena

SMALL_BYTES = 8 * 1024  # a buffer below this travels in the message (break-even: 4 to 16 KiB)
SMALL_TOTAL_BYTES = 32 * 1024  # all of them together, or they go to the slab after all
SKELETON_BYTES = 64 * 1024  # a pickle beyond this goes to the slab as well
INLINE_ALIGNMENT = 16  # what a bytearray of the other end begins at

# In the pickle it stands for "the next one of the table".
_NEXT = pickle.PickleBuffer(bytearray(1))


Source = torch.Tensor | memoryview  # where the bytes of something are
Flat = tuple[int, list[str]]  # which of _FLAT, and its keys if it is a dict
_FLAT: tuple[Any, ...] = (list, tuple, dict)
_ENTRY_BYTES = 32  # of an entry of the table in a message, more or less


class Unpackable(Exception):
    """This object cannot cross a process boundary; `__cause__` says why."""


@record
class Packed:
    """A batch, ready to travel."""

    # A pickle; or the shape of a flat batch; None: the batch is the one tensor of the table.
    skeleton: bytes | Flat | None
    table: list[Description | int]  # what a tensor looks like, or how many bytes a bare buffer has
    offsets: list[int]  # of each in the slab; ~offset, below zero, in `inline`
    inline: bytes
    slab_bytes: int = 0  # used of the slab; 0 if all of it travels in the message
    history_cut: bool = False  # a tensor of an autograd graph came along; the graph did not

    @property
    def message_bytes(self) -> int:
        """Say about how much of the batch travels in the message."""
        skeleton = self.skeleton
        shape = len(skeleton) if isinstance(skeleton, bytes) else _ENTRY_BYTES * len(self.table)
        return shape + len(self.inline)


def _is_read_only(array: Any) -> bool:
    return type(array).__module__ == "numpy" and not array.flags.writeable


def as_is(thing: Any) -> Any:
    """Give back the argument: what a tensor in the skeleton is made with."""
    return thing


class _Packer(pickle.Pickler):
    """Pickle a batch, its tensors and buffers apart."""

    def __init__(self, stream: io.BytesIO, views: dict[int, View] | None = None) -> None:
        """`views`: of shared memory, by the `id` of a tensor; None: each tensor for itself."""
        table: list[Description | int] = []
        sources: list[Source] = []  # where the bytes of each are

        def keep_buffer(buffer: pickle.PickleBuffer) -> None:
            if buffer is not _NEXT:
                raw = buffer.raw()
                table.append(raw.nbytes)
                sources.append(raw)

        # Not a method of ours: that would be a cycle, and the batch would live until it is found.
        super().__init__(stream, protocol=5, buffer_callback=keep_buffer)
        self.history_cut = False
        self.table, self.sources = table, sources
        self._views = views
        self.strided: list[torch.Tensor] = []  # all that may share memory

    def reducer_override(self, obj: Any) -> Any:
        if isinstance(obj, torch.Tensor):
            if self._views is not None and is_strided(obj) and not (obj.is_conj() or obj.is_neg()):
                self.strided.append(obj)
                if (view := self._views.get(id(obj))) is not None:
                    self.history_cut = self.history_cut or obj.grad_fn is not None
                    place = view.base, view.offset, view.code, view.shape, view.strides, view.grad
                    return rebuild_view, place
            if (entry := describe_plain(obj)) is not None:
                self.table.append(entry)
                self.sources.append(obj)
                return as_is, (_NEXT,)
            if obj.grad_fn is not None:
                self.history_cut = True
            if is_strided(obj):
                if not is_whole(obj):
                    raise Unpackable(
                        "a tensor lies beyond its memory: its storage was made smaller"
                    )
                holes = self._views is not None and keeps_holes(obj)
                values, entry = describe(obj, holes=holes)
                self.table.append(entry)
                self.sources.append(values)
                return as_is, (_NEXT,)
            reduced = reduce_tensor(obj)
            return NotImplemented if reduced is None else reduced
        if type(obj).__name__ == "ndarray" and _is_read_only(obj):
            return obj.copy(order="A").__reduce_ex__(5)  # else it would arrive read-only
        if isinstance(obj, torch.UntypedStorage):
            stored = reduce_storage(obj)
            return NotImplemented if stored is None else stored
        return NotImplemented


def pack(obj: Any, arena: Arena | None = None, *, as_views: bool = False) -> Packed:
    """Take an object apart. Raises Unpackable, whatever the pickling raised, or MemoryShort.

    Without an arena, or where the machine has no descriptor to give, all of it travels in the
    message: slower, but it travels. `as_views`: see `views`.
    """
    kind = type(obj)
    if kind is torch.Tensor and (entry := describe_plain(obj)) is not None:
        size = byte_size(entry)
        if 0 < size < SMALL_BYTES:
            return Packed(None, [entry], [~0], read_bytes(_address(obj), size))
        if arena is not None and size:
            with contextlib.suppress(OSError):
                offset = arena.put(_address(obj), size)
                return Packed(None, [entry], [offset], b"", arena.used)
        return _place(Packed(None, [entry], [], b""), [obj], arena)
    if kind in _FLAT and (flat := _flat(obj)) is not None:
        keys, tensors, table = flat
        if as_views and overlap(tensors):  # type: ignore[arg-type]
            return _pack_views(obj, arena)
        return _place(Packed((_FLAT.index(kind), keys), table, [], b""), tensors, arena)
    return _pack_views(obj, arena) if as_views else _pickled(obj, arena)


def _pickled(obj: Any, arena: Arena | None) -> Packed:
    packer, skeleton = _dump(obj)
    packed = Packed(skeleton, packer.table, [], b"", history_cut=packer.history_cut)
    return _place(packed, packer.sources, arena)


def _pack_views(obj: Any, arena: Arena | None) -> Packed:
    """Pack an object so that views arrive as they are. Which share memory, shows when all tensors
    have been seen: where some do, it is pickled once more."""
    packer, skeleton = _dump(obj, {})
    try:
        views = shared_views(packer.strided)
    except Exception as error:
        raise Unpackable(said(error)) from error
    if views:
        packer, skeleton = _dump(obj, views)
    packed = Packed(skeleton, packer.table, [], b"", history_cut=packer.history_cut)
    return _place(packed, packer.sources, arena)


def _dump(obj: Any, views: dict[int, View] | None = None) -> tuple[_Packer, bytes]:
    stream = io.BytesIO()
    try:
        packer = _Packer(stream, views)
        packer.dump(obj)
    except Exception as error:
        raise Unpackable(said(error)) from error
    return packer, stream.getvalue()


def _flat(batch: Any) -> tuple[list[str], list[Source], list[Description | int]] | None:
    """Take a batch apart that is a list, tuple or dict of plain tensors and nothing else: its
    keys, its tensors and what they look like. Most batches are; for two tensors a pickler takes
    three times as long."""
    keys: list[str] = []
    tensors: list[Source] = batch
    if type(batch) is dict:
        keys, tensors = list(batch), list(batch.values())
        if set(map(type, keys)) != {str}:
            return None
    table: list[Description | int] = []
    for each in tensors:
        if not isinstance(each, torch.Tensor) or (entry := describe_plain(each)) is None:
            return None
        table.append(entry)
    if len(set(map(id, tensors))) != len(tensors):
        return None  # two names of one tensor must arrive as two names of one tensor
    return keys, list(tensors), table


def unflatten(flat: Flat, tensors: list[Any]) -> Any:
    """Put such a batch together again."""
    place, keys = flat
    kind = _FLAT[place]
    return dict(zip(keys, tensors, strict=True)) if kind is dict else kind(tensors)


def _place(packed: Packed, sources: list[Source], arena: Arena | None) -> Packed:
    """Find a place for the bytes of everything in the table."""
    sizes = list(map(byte_size, packed.table))
    if isinstance(packed.skeleton, bytes) and len(packed.skeleton) > SKELETON_BYTES:
        # The last of the table, then, and an empty skeleton says so.
        sizes.append(len(packed.skeleton))
        packed.table.append(len(packed.skeleton))
        sources.append(memoryview(packed.skeleton))
        packed.skeleton = b""
    small = sum([aligned(size) for size in sizes if size < SMALL_BYTES])
    limit = SMALL_BYTES if small <= SMALL_TOTAL_BYTES else 1
    if arena is None or not any(size >= limit for size in sizes):
        packed.inline, packed.offsets = _join(sources, sizes)
        return packed
    try:
        _fill(packed, sources, sizes, limit, arena)
    except OSError:
        try:
            packed.inline, packed.offsets = _join(sources, sizes)
        except MemoryError as error:
            raise MemoryShort(sum(sizes), available()) from error
    return packed


def _fill(
    packed: Packed,
    sources: list[Source],
    sizes: list[int],
    limit: int,
    arena: Arena,
) -> None:
    """Copy what is not in the slab yet to it, and the small ones to the message."""
    offsets = packed.offsets
    pieces: list[bytes] = []
    copies: list[tuple[int, int, int]] = []  # address, size, offset in the slab
    buffers: list[tuple[memoryview, int]] = []
    inline, at = 0, arena.used
    collated = at > 0  # some of it is there already
    for source, size in zip(sources, sizes, strict=True):
        if size < limit:
            pieces.append(_bytes_of(source, size))
            offsets.append(~inline)
            inline += len(pieces[-1])
            continue
        if isinstance(source, torch.Tensor):
            address = _address(source)
            if collated and (offset := arena.offset_of(address, size)) is not None:
                offsets.append(offset)
                continue
            copies.append((address, size, at))
        else:
            buffers.append((source, at))
        offsets.append(at)
        at += aligned(size)
    memory = arena.make_room(at - arena.used)
    start = memory.address
    for address, size, offset in copies:
        memmove(start + offset, address, size)
    for source, offset in buffers:
        memory.view[offset : offset + source.nbytes] = source
    arena.used = packed.slab_bytes = at
    packed.inline = b"".join(pieces)


def bring_inside(packed: Packed, slab: memoryview) -> Packed:
    """Give a packed batch that travels whole in its message, out of its slab."""
    pieces: list[bytes] = []
    offsets: list[int] = []
    at = 0
    for entry, offset in zip(packed.table, packed.offsets, strict=True):
        size = byte_size(entry)
        source = memoryview(packed.inline)[~offset:] if offset < 0 else slab[offset:]
        pieces.append(_bytes_of(source[:size], size))
        offsets.append(~at)
        at += len(pieces[-1])
    return replace(packed, offsets=offsets, inline=b"".join(pieces), slab_bytes=0)


def _join(sources: list[Source], sizes: list[int]) -> tuple[bytes, list[int]]:
    """Put the bytes of everything one after the other."""
    if len(sources) == 1:
        return _bytes_of(sources[0], sizes[0]), [~0]
    pieces: list[bytes] = []
    offsets: list[int] = []
    at = 0
    for source, size in zip(sources, sizes, strict=True):
        pieces.append(_bytes_of(source, size))
        offsets.append(~at)
        at += len(pieces[-1])
    return b"".join(pieces), offsets


def _address(tensor: torch.Tensor) -> int:
    """Say where a tensor's elements are. Raises Unpackable if it has elements and no memory."""
    address = tensor.data_ptr()
    if not address:
        raise Unpackable("a tensor has elements but no memory behind it")
    return address


def _bytes_of(source: Source, size: int) -> bytes:
    """Copy bytes out, padded so that the next ones begin at a fitting place."""
    if not size:
        return b""
    data = read_bytes(_address(source), size) if isinstance(source, torch.Tensor) else bytes(source)
    gap = -size % INLINE_ALIGNMENT
    return data + bytes(gap) if gap else data


def says_cannot(error: BaseException) -> bool:
    """Say whether it is pickle that does not know how, not an object's own code that failed."""
    words = said(error)
    if isinstance(error, OSError):  # of a file, whose name may say anything
        return False
    return (
        isinstance(error, pickle.PicklingError)
        or "pickle" in words
        or "local object" in words  # "Can't get local object": of a class inside a function
    )


def find_unpackable(
    obj: Any, path: str = "batch", *, budget: int = 200, own: bool = False
) -> tuple[str, Any]:
    """Find what in a batch cannot be packed: the path to it, and the thing itself.

    Tries at most `budget` parts; stops at the smallest one that fails on its own. `own`: it was an
    object's own pickling that failed; what pickle knows nothing about is that object's business.
    """
    while budget > 0:
        for step, part in parts(obj):
            if budget <= 0:
                return path, obj
            budget -= 1
            try:
                pack(part)
            except Unpackable as error:
                if own and (error.__cause__ is None or says_cannot(error.__cause__)):
                    continue
                path, obj = path + step, part
                break
        else:
            return path, obj
    return path, obj


def find_grad(obj: Any, path: str = "batch", *, depth: int = 8) -> str | None:
    """Find a tensor that requires grad: the path to it, or None. Looks `depth` levels deep."""
    if isinstance(obj, torch.Tensor):
        return path if obj.requires_grad else None
    if depth > 0:
        for step, part in parts(obj):
            if (found := find_grad(part, path + step, depth=depth - 1)) is not None:
                return found
    return None


def parts(obj: Any) -> list[tuple[str, Any]]:
    """Give what an object is made of, each with the step that leads to it."""
    if isinstance(obj, dict):
        return [(f"[{shown(key)}]".replace("'", '"'), value) for key, value in obj.items()]
    if isinstance(obj, tuple) and hasattr(obj, "_fields"):
        return [(f".{name}", getattr(obj, name)) for name in obj._fields]
    if isinstance(obj, list | tuple | set | frozenset):
        return [(f"[{place}]", value) for place, value in enumerate(obj)]
    if isinstance(obj, type):
        return []
    if isinstance(getattr(obj, "__dict__", None), dict):
        return [(f".{name}", value) for name, value in vars(obj).items()]
    if dataclasses.is_dataclass(obj):  # with slots
        names = [field.name for field in dataclasses.fields(obj)]
        return [(f".{name}", getattr(obj, name)) for name in names if hasattr(obj, name)]
    return []
