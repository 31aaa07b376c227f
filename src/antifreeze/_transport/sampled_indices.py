"""What a sampler yields, copied when it is drawn: it may fill the same list again for the next
batch, and ours is read later, in another process."""

from __future__ import annotations

import pickle
import sys
from types import NoneType
from typing import Any

import torch

_ATOMS = frozenset({int, bool, float, complex, str, bytes, NoneType, range, slice})


def own_copy(indices: Any) -> Any:
    """Return a copy that nobody else can change. Never raises.

    What cannot be copied is returned as it is: it cannot be sent either, and sending it raises the
    error at the position of its batch.
    """
    if type(indices) is list and set(map(type, indices)) <= _ATOMS:  # nearly always
        return indices.copy()
    try:
        return _copy(indices)
    except Exception:  # of the user's own classes; nested without end
        return indices


def _copy(thing: Any) -> Any:
    kind = type(thing)
    if kind in _ATOMS:
        return thing
    if kind is list:
        return [_copy(each) for each in thing]
    if kind is tuple:
        return tuple(_copy(each) for each in thing)
    if kind is dict:
        return {key: _copy(value) for key, value in thing.items()}
    if kind is torch.Tensor and thing.is_cpu and not thing.requires_grad:
        return thing.clone()
    numpy: Any = sys.modules.get("numpy")
    if numpy is not None:
        if isinstance(thing, numpy.generic):
            return thing
        if kind is numpy.ndarray and not thing.dtype.hasobject:
            return thing.copy()
    # As the worker will get it.
    return pickle.loads(pickle.dumps(thing, protocol=5))
