"""How a tensor is taken apart and put together again: the view travels, not its storage."""

from __future__ import annotations

import math
import sys
from collections.abc import Callable
from typing import Any

import torch

from .._torch_internals import (
    make_per_channel_quantized,
    make_per_tensor_quantized,
    nested_layout,
    nested_view_from_buffer,
    ragged_dimension,
)
from .sparse_tensors import reduce_sparse

Reduced = tuple[Callable[..., Any], tuple[Any, ...]]

_QUANTIZED = ("qint8", "quint8", "qint32", "quint4x2", "quint2x4")
_ONLY_QUANTIZED = {getattr(torch, name) for name in _QUANTIZED if hasattr(torch, name)}
_NATIVE_REDUCE = torch.Tensor.__reduce_ex__
# Dimensions had names until torch 2.12. torch cannot pickle such a tensor; its loader hangs then.
_has_names: Any = getattr(torch.Tensor, "has_names", None)


# A tensor's place in the table of a parcel: what it looks like, but not where it lies.
# (dtype as a number, elements in memory, shape, strides or None if contiguous, requires grad)
Description = tuple[int, int, tuple[int, ...], tuple[int, ...] | None, bool]

DTYPES: list[torch.dtype] = sorted(
    {value for value in vars(torch).values() if isinstance(value, torch.dtype)}, key=str
)
CODES = {dtype: code for code, dtype in enumerate(DTYPES)}


def describe_plain(tensor: torch.Tensor) -> Description | None:
    """Describe, at once, nearly every tensor there is: one that is nothing but its numbers."""
    if (
        type(tensor) is torch.Tensor
        and tensor.is_cpu
        and tensor.layout is torch.strided
        and not tensor.requires_grad
        and tensor.is_contiguous()
        and not tensor.is_nested
        and not tensor.is_neg()
        and not tensor.is_conj()
        and not tensor.__dict__
        and not is_named(tensor)
    ):
        dtype = tensor.dtype
        if dtype not in _ONLY_QUANTIZED:
            return CODES[dtype], tensor.numel(), tuple(tensor.shape), None, False
    return None


def describe(tensor: torch.Tensor, *, holes: bool = False) -> tuple[torch.Tensor, Description]:
    """Return the tensor whose memory travels, from its first element on, and how to look at it.
    `holes`: what lies between the elements of a view travels, too."""
    values = tensor.detach()
    if values.is_conj():
        values = values.resolve_conj()
    if values.is_neg():
        values = values.resolve_neg()
    shape, count = tuple(values.shape), values.numel()
    strides: tuple[int, ...] | None = None
    span = count
    if not values.is_contiguous():
        strides = values.stride()
        span = 1 + sum((n - 1) * step for n, step in zip(shape, strides, strict=True))
        if span > count and not holes:  # a view with holes: send what it shows
            values, span, strides = values.contiguous(), count, None
        # Otherwise the memory it covers is no larger than what it shows (dense in any order, or
        # expanded): send that memory once and look at it in the same way over there.
    return values, (CODES[values.dtype], span, shape, strides, tensor.requires_grad)


_ndarray: Any = getattr(sys.modules.get("numpy"), "ndarray", None)
_MOST_DIMENSIONS = 32  # of an array, before numpy 2


def _array_type(dtype: torch.dtype) -> Any:
    """Give numpy's own word for a dtype; None if it has none, or torch is without numpy."""
    name = {torch.bool: "bool_"}.get(dtype, str(dtype).removeprefix("torch."))
    known = name in ("bool_", "float16", "float32", "float64", "uint8") or name.startswith("int")
    found = getattr(sys.modules.get("numpy"), name, None) if known else None
    try:
        return found and torch.from_numpy(_ndarray(1, found)) is not None and found
    except (RuntimeError, TypeError):
        return None


_ARRAY_TYPES = [_array_type(dtype) for dtype in DTYPES]


def look_at(memory: Any, offset: int, dtype: torch.dtype, shape: tuple[int, ...]) -> torch.Tensor:
    """Look at memory as a contiguous tensor. Its storage is its own bytes, no more."""
    return rebuild((CODES[dtype], math.prod(shape), shape, None, False), memory, offset)


def rebuild(what: Description, memory: Any, offset: int) -> torch.Tensor:
    """Look at memory as the tensor that was described. Its storage is its own bytes, no more."""
    code, span, shape, strides, grad = what
    if not span:
        tensor = torch.empty(shape, dtype=DTYPES[code], device="cpu")
    elif (
        strides is None
        and 1 < len(shape) <= _MOST_DIMENSIONS
        and (kind := _ARRAY_TYPES[code]) is not None
    ):
        # One tensor instead of two: a buffer as such has one dimension, and a view of it is more.
        tensor = torch.from_numpy(_ndarray(shape, kind, memory, offset))
    else:
        tensor = torch.frombuffer(memory, dtype=DTYPES[code], count=span, offset=offset)
        if strides is not None:
            tensor = tensor.as_strided(shape, strides)
        elif len(shape) != 1:
            tensor = tensor.view(shape)
    return tensor.requires_grad_() if grad else tensor


def byte_size(what: Description | int) -> int:
    """Say how many bytes a tensor has in memory; of a bare buffer we know nothing else."""
    return what if isinstance(what, int) else what[1] * DTYPES[what[0]].itemsize


def is_strided(tensor: torch.Tensor) -> bool:
    """Say whether `describe` can tell all there is to tell about this tensor."""
    return (
        type(tensor) is torch.Tensor
        and tensor.layout is torch.strided
        and tensor.is_cpu
        and not tensor.is_nested
        and not tensor.is_quantized
        and tensor.dtype not in _ONLY_QUANTIZED
        and not tensor.__dict__
        and not is_named(tensor)
    )


def is_named(tensor: torch.Tensor) -> bool:
    """Whether dimensions of a tensor have names."""
    return _has_names is not None and bool(_has_names(tensor))


def take_names(tensor: Any) -> Reduced:
    """Take a plain tensor and the names of its dimensions apart."""
    return name_dimensions, (tensor.detach().rename(None), tensor.names, tensor.requires_grad)


def name_dimensions(plain: Any, names: tuple[str | None, ...], grad: bool) -> torch.Tensor:
    tensor: torch.Tensor = plain.rename_(*names)  # in place: no view of another
    return tensor.requires_grad_() if grad else tensor


def reduce_tensor(tensor: torch.Tensor) -> Reduced | None:
    """Take apart a tensor that is more than its numbers, into plain ones; None leaves it to the
    tensor's own way of pickling."""
    kind = type(tensor)
    if kind.__reduce_ex__ is not _NATIVE_REDUCE:
        return None
    if tensor.is_nested:
        return _reduce_nested(tensor)
    if kind is torch.Tensor and not tensor.__dict__ and is_named(tensor):
        return take_names(tensor)
    if tensor.is_quantized:
        return _reduce_quantized(tensor)
    if tensor.layout is not torch.strided:
        if (sparse := reduce_sparse(tensor)) is not None or not tensor.requires_grad:
            return sparse
        return _attach_grad, (tensor.detach(),)
    if tensor.device.type != "cpu":
        if tensor.device.type == "meta":
            return None
        # Through host memory: a handle into the worker's own device memory would die with it.
        return _rebuild_on_device, (tensor.detach().cpu(), tensor.device, tensor.requires_grad)
    if tensor.dtype in _ONLY_QUANTIZED:
        return None  # a bare view with such a dtype: torch itself cannot rebuild it from a buffer
    if hasattr(tensor, "__tensor_flatten__") or isinstance(tensor, torch.nn.Parameter):
        return None  # made of other tensors, which come past here on their own
    plain = tensor.detach().as_subclass(torch.Tensor)
    return _rebuild_subclass, (plain, kind, dict(tensor.__dict__), tensor.requires_grad)


def reduce_storage(storage: torch.UntypedStorage) -> Reduced | None:
    if storage.device.type != "cpu":
        return None
    return _rebuild_storage, (torch.empty(0, dtype=torch.uint8, device="cpu").set_(storage),)


def _reduce_nested(tensor: torch.Tensor) -> Reduced | None:
    values: Any = tensor.detach()
    if tensor.layout is torch.jagged:
        ragged = ragged_dimension(values)
        if ragged is None:
            return None
        parts = (values.values(), values.offsets(), values.lengths(), ragged)
        return _rebuild_jagged, (*parts, tensor.requires_grad)
    values = values if values.is_contiguous() else values.contiguous()
    if (layout := nested_layout(values)) is None:
        return None
    return _rebuild_nested, (values.values(), *layout, tensor.requires_grad)


def _reduce_quantized(tensor: torch.Tensor) -> Reduced | None:
    # torch's own way sends the whole storage and warns about an old class on arrival
    if make_per_tensor_quantized is None or make_per_channel_quantized is None:
        return None
    if tensor.qscheme() in (torch.per_tensor_affine, torch.per_tensor_symmetric):
        return make_per_tensor_quantized, (
            tensor.int_repr(),
            tensor.q_scale(),
            tensor.q_zero_point(),
        )
    return make_per_channel_quantized, (
        tensor.int_repr(),
        tensor.q_per_channel_scales(),
        tensor.q_per_channel_zero_points(),
        tensor.q_per_channel_axis(),
    )


def _rebuild_storage(data: torch.Tensor) -> torch.UntypedStorage:
    return data.untyped_storage()


def _rebuild_nested(
    values: torch.Tensor,
    size: torch.Tensor,
    strides: torch.Tensor,
    offsets: torch.Tensor,
    grad: bool,
) -> torch.Tensor:
    tensor: torch.Tensor = nested_view_from_buffer(values, size, strides, offsets)
    return tensor.requires_grad_() if grad else tensor


def _rebuild_jagged(
    values: torch.Tensor,
    offsets: torch.Tensor,
    lengths: torch.Tensor | None,
    ragged: int,
    grad: bool,
) -> torch.Tensor:
    tensor = torch.nested.nested_tensor_from_jagged(values, offsets, lengths, jagged_dim=ragged)
    return tensor.detach().requires_grad_() if grad else tensor


def _rebuild_subclass(
    plain: torch.Tensor, kind: type[torch.Tensor], state: dict[str, Any], grad: bool
) -> torch.Tensor:
    tensor = plain.as_subclass(kind)
    tensor.__dict__.update(state)
    return tensor.requires_grad_() if grad else tensor


def _rebuild_on_device(values: torch.Tensor, device: torch.device, grad: bool) -> torch.Tensor:
    tensor = values.to(device)
    return tensor.requires_grad_() if grad else tensor


def _attach_grad(tensor: torch.Tensor) -> torch.Tensor:
    return tensor.requires_grad_()
