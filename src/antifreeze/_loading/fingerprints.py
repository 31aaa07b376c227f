"""What is in arrays and tensors of the user's: a fingerprint that tells a change in place."""

from __future__ import annotations

import sys
import zlib
from typing import Any

import torch

from .._torch_internals import version_of

WHOLE = 512 * 1024  # bytes: 0.2 ms. Of larger ones, as many elements as follow
ELEMENTS = 4096


class Contents:
    """Stands for an array: which one it is, and what is in it, if other processes do not see it."""

    __slots__ = ("_identity", "_print")

    def __init__(self, array: Any, *, closely: bool = True) -> None:
        self._identity = id(array)
        self._print = _print_of(array) if closely else None

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Contents) or self._identity != other._identity:
            return False
        return self._print is None or other._print is None or self._print == other._print

    __hash__ = None  # type: ignore[assignment]


def is_array(thing: Any) -> bool:
    """Say whether a thing is an array or a tensor: of no other kind, whose methods may do more."""
    numpy = sys.modules.get("numpy")
    kind = type(thing)
    return kind is torch.Tensor or (numpy is not None and kind is numpy.ndarray)


def _print_of(array: Any) -> tuple[int, ...] | None:
    """Give nothing where the memory may be one that all processes see."""
    try:
        if type(array) is torch.Tensor:
            return _print_of_tensor(array)
        if not _is_private(array):
            return None
        some = array if array.nbytes <= WHOLE else array.flat[:: array.size // ELEMENTS]
        return (zlib.crc32(some.tobytes()),)
    except Exception:  # of a kind that numpy does not have
        return None


def _print_of_tensor(tensor: torch.Tensor) -> tuple[int, ...] | None:
    storage = tensor.untyped_storage()
    # Not resizable: it is not torch's own memory, but that of a file, say, or of numpy.
    if tensor.device.type != "cpu" or storage.is_shared() or not storage.resizable():
        return None
    if tensor.nbytes <= WHOLE:
        some = tensor.detach().clone()  # `numpy()` leaves a mark on the memory it shows
        return (zlib.crc32(some.numpy().tobytes()),)
    if not tensor.is_contiguous():
        return (version_of(tensor),)
    some = tensor.detach().view(-1)[:: tensor.numel() // ELEMENTS].clone()
    return version_of(tensor), zlib.crc32(some.numpy().tobytes())


def _is_private(array: Any) -> bool:
    """Say whether the memory of an array of numpy's is its own, or that of another such one."""
    kind = type(array)
    while type(array.base) is kind:
        array = array.base
    return array.base is None
