"""Views that arrive as they were: with their strides, and with the memory that they share.

Our batches bring what a view shows, and two views of one memory arrive as two tensors. Torch's
loader sends the memory itself. A sum over other strides may differ in its last bit, and what a
program writes to one of two views is seen in the other, so where a run is to equal torch's:

1. A view with holes travels with its holes, unless these are far larger than what it shows.
2. Views whose memory overlaps travel as one piece of memory, and each is a view of that again.
"""

from __future__ import annotations

from collections.abc import Iterable

import torch

from .._core.messages import frozen
from .tensors import CODES, DTYPES

# Holes may be the better part of an in-memory dataset, and every batch brings them anew.
MOST_HOLES_BYTES = 64 * 1024 * 1024
MOST_HOLES_TIMES = 4  # as much as what is shown
ALIGNMENT = 16  # bytes: the largest element has as many


@frozen
class View:
    """A tensor as a view of the memory that it shares with others."""

    base: torch.Tensor  # of bytes
    offset: int  # bytes
    code: int  # of its dtype
    shape: tuple[int, ...]
    strides: tuple[int, ...]
    grad: bool


def span_of(tensor: torch.Tensor) -> int:
    """Return how many elements lie between the first and the last one, both included."""
    if not tensor.numel():
        return 0
    steps = zip(tensor.shape, tensor.stride(), strict=True)
    return 1 + sum((count - 1) * step for count, step in steps)


def keeps_holes(tensor: torch.Tensor) -> bool:
    """Whether a view travels with its holes."""
    size = tensor.element_size()
    most = max(MOST_HOLES_BYTES, MOST_HOLES_TIMES * tensor.numel() * size)
    return span_of(tensor) * size <= most


def overlap(tensors: Iterable[torch.Tensor]) -> bool:
    """Whether the memory of any two tensors overlaps."""
    end = 0
    for start, after in sorted(map(_extent, tensors)):
        if start < end:
            return True
        end = after
    return False


def shared_views(tensors: list[torch.Tensor]) -> dict[int, View]:
    """Return the tensors whose memory overlaps, by their `id`, as views of what they share."""
    found: dict[int, View] = {}
    cluster: list[torch.Tensor] = []
    end = 0
    for tensor in sorted(tensors, key=_extent):
        start, after = _extent(tensor)
        if start >= end:
            found |= _views_of(cluster)
            cluster = []
        cluster.append(tensor)
        end = max(end, after)
    return found | _views_of(cluster)


def look_again(
    base: torch.Tensor,
    offset: int,
    code: int,
    shape: tuple[int, ...],
    strides: tuple[int, ...],
    grad: bool,
) -> torch.Tensor:
    """Make the view anew, at the other end."""
    dtype = DTYPES[code]
    tensor = torch.empty(0, dtype=dtype, device="cpu")
    tensor.set_(base.untyped_storage(), offset // dtype.itemsize, shape, strides)
    return tensor.requires_grad_() if grad else tensor


def _extent(tensor: torch.Tensor) -> tuple[int, int]:
    start = tensor.data_ptr()
    return start, start + span_of(tensor) * tensor.element_size()


def _views_of(cluster: list[torch.Tensor]) -> dict[int, View]:
    if len(cluster) < 2:
        return {}
    storage = cluster[0].untyped_storage()
    begin, end = storage.data_ptr(), max(_extent(each)[1] for each in cluster)
    # From a place on that fits every kind of element.
    first = (cluster[0].data_ptr() - begin) // ALIGNMENT * ALIGNMENT
    base = torch.empty(0, dtype=torch.uint8, device="cpu")
    base.set_(storage, first, (end - begin - first,), (1,))
    return {
        id(each): View(
            base,
            each.data_ptr() - begin - first,
            CODES[each.dtype],
            tuple(each.shape),
            each.stride(),
            each.requires_grad,
        )
        for each in cluster
    }
