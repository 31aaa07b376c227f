"""How a sparse tensor is put together again: by a function of ours, since torch keeps what its own
function has made until the next `torch.load`, and with it the memory of every batch."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

_COMPRESSED = {torch.sparse_csr, torch.sparse_csc, torch.sparse_bsr, torch.sparse_bsc}
_PROTOCOL = 2  # of pickle: the oldest that torch takes tensors apart for


def reduce_sparse(tensor: torch.Tensor) -> tuple[Callable[..., Any], tuple[Any, ...]] | None:
    """Take apart a sparse tensor into plain ones; None leaves it to torch's own way."""
    known = tensor.layout is torch.sparse_coo or tensor.layout in _COMPRESSED
    if type(tensor) is not torch.Tensor or not known:
        return None
    bare: Any = tensor.detach()  # without attributes, which are taken along here
    match bare.__reduce_ex__(_PROTOCOL):
        case (_, (layout, (_, _, _, _) as parts)) if layout is tensor.layout:
            return _rebuild, (layout, parts, dict(tensor.__dict__), tensor.requires_grad)
    return None


def _rebuild(
    layout: torch.layout, parts: tuple[Any, ...], state: dict[str, Any], grad: bool
) -> torch.Tensor:
    """Put a tensor together without checking what a worker had as a tensor before."""
    # (The argument `check_invariants=False` alone does not keep torch 2.11 from warning.)
    with torch.sparse.check_sparse_tensor_invariants(False):  # type: ignore[no-untyped-call]
        if layout is torch.sparse_coo:
            indices, values, size, is_coalesced = parts
            tensor = torch.sparse_coo_tensor(indices, values, size, is_coalesced=is_coalesced)
        else:
            tensor = torch.sparse_compressed_tensor(*parts, layout=layout)
    tensor.__dict__.update(state)
    return tensor.requires_grad_() if grad else tensor
