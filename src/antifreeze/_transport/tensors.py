"""How a tensor is taken apart and put together again: the view travels, not its storage."""

from __future__ import annotations

import ctypes
import pickle
from collections.abc import Callable
from typing import Any

import torch

Reduced = tuple[Callable[..., Any], tuple[Any, ...]]

_ONLY_QUANTIZED = {torch.qint8, torch.quint8, torch.qint32, torch.quint4x2, torch.quint2x4}
_NATIVE_REDUCE = torch.Tensor.__reduce_ex__


def reduce_tensor(tensor: torch.Tensor) -> Reduced | None:
    """Take a tensor apart; None leaves it to the tensor's own way of pickling."""
    kind = type(tensor)
    if kind.__reduce_ex__ is not _NATIVE_REDUCE:
        return None
    if tensor.is_nested:
        return _reduce_nested(tensor)
    if tensor.is_quantized:
        return _reduce_quantized(tensor)
    if tensor.layout is not torch.strided:
        if tensor.requires_grad:
            return _attach_grad, (tensor.detach(),)
        return None  # sparse tensors come apart into plain ones
    if tensor.device.type != "cpu":
        if tensor.device.type == "meta":
            return None
        # Through host memory: a handle into the worker's own device memory would die with it.
        return _rebuild_on_device, (tensor.detach().cpu(), tensor.device, tensor.requires_grad)
    if tensor.dtype in _ONLY_QUANTIZED:
        return None  # a bare view with such a dtype: torch itself cannot rebuild it from a buffer
    if kind is torch.Tensor and not tensor.__dict__:
        return _reduce_strided(tensor)
    if hasattr(tensor, "__tensor_flatten__") or isinstance(tensor, torch.nn.Parameter):
        return None  # made of other tensors, which come past here on their own
    plain = tensor.detach().as_subclass(torch.Tensor)
    return _rebuild_subclass, (plain, kind, dict(tensor.__dict__), tensor.requires_grad)


def reduce_storage(storage: torch.UntypedStorage) -> Reduced | None:
    if storage.device.type != "cpu":
        return None
    return _rebuild_storage, (_borrow(storage.data_ptr(), storage.nbytes(), storage),)


def _reduce_strided(tensor: torch.Tensor) -> Reduced:
    values = tensor.detach()
    if values.is_conj():
        values = values.resolve_conj()
    if values.is_neg():
        values = values.resolve_neg()
    shape, strides = tuple(values.shape), values.stride()
    count = values.numel()
    if count == 0:
        return _rebuild_empty, (values.dtype, shape, tensor.requires_grad)
    span = 1 + sum((n - 1) * step for n, step in zip(shape, strides, strict=True))
    if span > count:  # a view with holes: send what it shows
        values, span = values.contiguous(), count
        strides = values.stride()
    # Otherwise the memory it covers is no larger than what it shows (dense in any order, or
    # expanded): send that memory once and look at it in the same way over there.
    data = _borrow(values.data_ptr(), span * values.element_size(), values)
    return _rebuild_strided, (data, values.dtype, shape, strides, tensor.requires_grad)


def _borrow(address: int, size: int, owner: object) -> pickle.PickleBuffer:
    """Give the memory of a tensor as a buffer, without numpy and without a copy."""
    if size == 0:
        return pickle.PickleBuffer(b"")
    array = (ctypes.c_char * size).from_address(address)
    array._owner = owner  # type: ignore[attr-defined]
    return pickle.PickleBuffer(array)


def _reduce_nested(tensor: torch.Tensor) -> Reduced:
    values: Any = tensor.detach()
    if tensor.layout is torch.jagged:
        parts = (values.values(), values.offsets(), values.lengths(), values._ragged_idx)
        return _rebuild_jagged, (*parts, tensor.requires_grad)
    values = values if values.is_contiguous() else values.contiguous()
    return _rebuild_nested, (
        values.values(),
        values._nested_tensor_size(),
        values._nested_tensor_strides(),
        values._nested_tensor_storage_offsets(),
        tensor.requires_grad,
    )


def _reduce_quantized(tensor: torch.Tensor) -> Reduced:
    # torch's own way sends the whole storage and warns about an old class on arrival
    if tensor.qscheme() in (torch.per_tensor_affine, torch.per_tensor_symmetric):
        return torch._make_per_tensor_quantized_tensor, (
            tensor.int_repr(),
            tensor.q_scale(),
            tensor.q_zero_point(),
        )
    return torch._make_per_channel_quantized_tensor, (
        tensor.int_repr(),
        tensor.q_per_channel_scales(),
        tensor.q_per_channel_zero_points(),
        tensor.q_per_channel_axis(),
    )


def _rebuild_strided(
    data: Any, dtype: torch.dtype, shape: tuple[int, ...], strides: tuple[int, ...], grad: bool
) -> torch.Tensor:
    tensor = torch.frombuffer(data, dtype=dtype).as_strided(shape, strides)
    return tensor.requires_grad_() if grad else tensor


def _rebuild_empty(dtype: torch.dtype, shape: tuple[int, ...], grad: bool) -> torch.Tensor:
    return torch.empty(shape, dtype=dtype, requires_grad=grad)


def _rebuild_storage(data: Any) -> torch.UntypedStorage:
    if len(data) == 0:
        return torch.UntypedStorage(0)  # type: ignore[no-untyped-call]
    return torch.frombuffer(data, dtype=torch.uint8).untyped_storage()


def _rebuild_nested(
    values: torch.Tensor,
    size: torch.Tensor,
    strides: torch.Tensor,
    offsets: torch.Tensor,
    grad: bool,
) -> torch.Tensor:
    tensor = torch._nested_view_from_buffer(values, size, strides, offsets)
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
