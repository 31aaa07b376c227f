"""From bytes to a batch: its tensors and arrays look at the memory they came in.

1. What lies in the slab is looked at through an anchor. As long as anything that was made from the
   batch lives, so does the anchor; when it dies, the slab may be filled again.
2. A batch that was copied out has memory of its own, tensor by tensor, and no anchor.
3. Memory belongs to the storage, not to what the storage points at: `share_memory_()`, and a queue
   of torch.multiprocessing, swap the bytes of a storage for others and let go of the first ones,
   while arrays made before still show them. (Torch's own batches are shared already.)
"""

from __future__ import annotations

import pickle
from typing import Any

import torch

from .packing import Packed, unflatten
from .tensors import byte_size, rebuild
from .worker_slabs import Anchor

Copies = dict[int, bytearray]  # by place in the table


def copy_out(packed: Packed, slab: memoryview) -> Copies:
    """Copy everything that lies in a slab."""
    copies: Copies = {}
    for place, (entry, at) in enumerate(zip(packed.table, packed.offsets, strict=True)):
        if at >= 0:
            copies[place] = bytearray(slab[at : at + byte_size(entry)])
    return copies


def unpack(packed: Packed, anchor: Anchor | None = None, copies: Copies | None = None) -> Any:
    """Build the batch. Raises whatever the user's own classes raise when they are rebuilt."""
    if packed.skeleton is None:  # one tensor, and nothing else
        at = packed.offsets[0]
        memory: Any = anchor
        if at < 0:
            memory, at = bytearray(packed.inline), ~at
        elif copies is not None:
            memory, at = copies[0], 0
        return _held(rebuild(packed.table[0], memory, at), memory)  # type: ignore[arg-type]
    inline = bytearray(packed.inline)
    parts: list[Any] = []
    for place, (entry, at) in enumerate(zip(packed.table, packed.offsets, strict=True)):
        memory = anchor
        if at < 0:
            memory, at = inline, ~at
        elif copies is not None:
            memory, at = copies[place], 0
        if isinstance(entry, int):
            parts.append(memoryview(memory).cast("B")[at : at + entry])
        else:
            parts.append(_held(rebuild(entry, memory, at), memory))
    skeleton: Any = packed.skeleton
    if isinstance(skeleton, tuple):
        return unflatten(skeleton, parts)
    if not skeleton:
        skeleton = parts.pop()
    return pickle.loads(skeleton, buffers=parts)


def _held(tensor: torch.Tensor, memory: Any) -> torch.Tensor:
    """Keep memory alive as long as the storage of a tensor, whatever that comes to point at.

    Every array, DLPack capsule and view of a tensor holds its storage, and torch keeps the
    storage's Python object, with this attribute, as long as the storage itself.
    """
    tensor.untyped_storage()._antifreeze_memory = memory  # type: ignore[attr-defined]
    return tensor
