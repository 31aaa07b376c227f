"""Views that arrive as they were: with their strides, and with the memory that they share.

Our batches bring what a view shows, and two views of one memory arrive as two tensors. Torch's
loader sends the memory itself. A sum over other strides may differ in its last bit, and what a
program writes to one of two views is seen in the other, so where a run is to equal torch's:

1. A view with holes travels with its holes, unless these are far larger than what it shows.
2. Views of one storage that overlap travel as one piece of memory, and each is a view of that
   again; with the same exception.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import torch

from .._core.frozen_values import frozen
from .tensors import CODES, DTYPES

# Holes may be the better part of an in-memory dataset, and every batch brings them anew.
MOST_HOLES_BYTES = 16 * 1024 * 1024
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
    return _is_worth(_extent(tensor), tensor.nbytes) and is_whole(tensor)


def is_whole(tensor: torch.Tensor) -> bool:
    """Whether a tensor lies within its storage: somebody may have made that smaller since."""
    return _extent(tensor)[1] <= tensor.untyped_storage().nbytes()


def _is_worth(extent: tuple[int, int], shown_bytes: int) -> bool:
    start, end = extent
    return end - start <= max(MOST_HOLES_BYTES, MOST_HOLES_TIMES * shown_bytes)


def overlap(tensors: Iterable[torch.Tensor]) -> bool:
    """Whether any two tensors of one storage overlap."""
    return any(len(cluster) > 1 for cluster in _clusters(tensors))


def shared_views(tensors: Iterable[torch.Tensor]) -> dict[int, View]:
    """Return the tensors that overlap others of their storage, by `id`, as views of that."""
    found: dict[int, View] = {}
    for cluster in _clusters(tensors):
        if len(cluster) > 1:
            found |= _views_of(cluster)
    return found


def rebuild_view(
    base: torch.Tensor,
    offset: int,
    code: int,
    shape: tuple[int, ...],
    strides: tuple[int, ...],
    grad: bool,
) -> torch.Tensor:
    """Make the view anew, at the other end."""
    dtype = DTYPES[code]
    if offset % dtype.itemsize:
        raise ValueError(f"a view of {dtype} cannot begin at byte {offset}")
    tensor = torch.empty(0, dtype=dtype, device="cpu")
    tensor.set_(base.untyped_storage(), offset // dtype.itemsize, shape, strides)
    return tensor.requires_grad_() if grad else tensor


def _extent(tensor: torch.Tensor) -> tuple[int, int]:
    """Return where a tensor begins and ends in its storage, in bytes."""
    size = tensor.element_size()
    start = int(tensor.storage_offset()) * size
    return start, start + span_of(tensor) * size


def _clusters(tensors: Iterable[torch.Tensor]) -> Iterator[list[torch.Tensor]]:
    """Part tensors so that only those in one list may overlap. Other storages over the same memory
    do not count: torch sends each storage for itself."""
    storages: dict[int, tuple[torch.UntypedStorage, list[torch.Tensor]]] = {}
    for tensor in tensors:
        storage = tensor.untyped_storage()  # the same object for every view, while it is held
        storages.setdefault(id(storage), (storage, []))[1].append(tensor)
    for _, views in storages.values():
        cluster: list[torch.Tensor] = []
        end = 0
        for tensor in sorted(views, key=_extent):
            start, after = _extent(tensor)
            if start >= end and cluster:
                yield cluster
                cluster = []
            cluster.append(tensor)
            end = max(end, after)
        yield cluster


def _views_of(cluster: list[torch.Tensor]) -> dict[int, View]:
    # From a place on that fits every kind of element.
    first = _extent(cluster[0])[0] // ALIGNMENT * ALIGNMENT
    end = max(_extent(each)[1] for each in cluster)
    shown = sum(each.nbytes for each in cluster)
    if not all(map(is_whole, cluster)) or not _is_worth((first, end), shown):
        return {}
    base = torch.empty(0, dtype=torch.uint8, device="cpu")
    base.set_(cluster[0].untyped_storage(), first, (end - first,), (1,))
    return {
        id(each): View(
            base,
            _extent(each)[0] - first,
            CODES[each.dtype],
            tuple(each.shape),
            each.stride(),
            each.requires_grad,
        )
        for each in cluster
    }
