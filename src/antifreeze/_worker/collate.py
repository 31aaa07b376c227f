"""torch's default collate, writing straight into the slab that the batch will travel in."""

from __future__ import annotations

from typing import Any

import torch

from .._torch_internals import default_collate_fn_map, set_worker_info, worker_info
from .._transport.memory import MemoryShort
from .._transport.worker_slabs import Arena

_PLAIN = {torch.Tensor}
# A smaller stack is copied to the slab in less time than it takes to see that it may be made there
# (200 rows of 160 bytes: 33 us to look at them and make room, 12 us to pack with a copy).
WORTH_BYTES = 64 * 1024


def collate_into(arena: Arena) -> None:
    """Have the default collate of this process stack tensors in the arena's present slab.

    torch's own way allocates a shared memory object for every tensor when it runs in a worker. It
    looks for worker info to know where it is; where we leave a batch to it, it finds none.
    """
    plain = default_collate_fn_map[torch.Tensor]

    def stack_in_slab(batch: Any, *, collate_fn_map: Any = None) -> Any:
        if (room := _room(batch, arena)) is not None:
            try:
                return torch.stack(batch, out=room)
            except RuntimeError:  # shapes that differ, gradients: torch's own way has the words
                pass
        info = worker_info()
        set_worker_info(None)
        try:
            return plain(batch, collate_fn_map=collate_fn_map)
        finally:
            set_worker_info(info)

    default_collate_fn_map[torch.Tensor] = stack_in_slab


def _room(batch: Any, arena: Arena) -> torch.Tensor | None:
    """Give room for a stack of these tensors, if it is worth it and nothing would be lost.

    `out=` casts in silence where a plain stack would promote, so all must be of one dtype.
    """
    first = batch[0]
    size = first.numel() * first.element_size() * len(batch)
    if size < WORTH_BYTES or not first.is_cpu or first.is_quantized or first.is_nested:
        return None
    dtype = first.dtype
    if set(map(type, batch)) != _PLAIN or {each.dtype for each in batch} != {dtype}:
        return None
    if first.layout is not torch.strided:
        return None
    try:
        return arena.take((len(batch), *first.shape), dtype, size)
    except (MemoryShort, OSError):
        return None  # packing will try again, and say what is the matter
