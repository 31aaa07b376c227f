"""Views of other objects: they arrive as views of the same objects, not as copies."""

from __future__ import annotations

import array
import gc
import mmap
from collections import OrderedDict
from collections.abc import Callable
from types import MappingProxyType
from typing import Any

from ...._loading.rng_adapters import numpy_if_there
from ..unsendable import Unsendable

_OWNERS = (bytes, bytearray, array.array, mmap.mmap)


def ways() -> dict[type, Callable[[Any], Any]]:
    """Return how views are sent."""
    found: dict[type, Callable[[Any], Any]] = {
        MappingProxyType: lambda view: (MappingProxyType, (_behind(view),)),
        memoryview: _reduce_memory,
    }
    for kind in (dict, OrderedDict):
        for name in ("keys", "values", "items"):
            found[type(getattr(kind(), name)())] = _DictViews(kind, name)
    return found


class _DictViews:
    """How one kind of view of a dict is sent."""

    def __init__(self, kind: type, name: str) -> None:
        self._kind, self._name = kind, name

    def __call__(self, view: Any) -> Any:
        return _view_of, (self._kind, self._name, _behind(view))


def _behind(view: Any) -> Any:
    """Return what a view shows, as the garbage collector sees it."""
    found = gc.get_referents(view)
    if len(found) != 1:
        raise Unsendable(f"a {type(view).__name__} of nobody knows what")
    return found[0]


def _reduce_memory(view: memoryview) -> Any:
    owner, numpy = view.obj, numpy_if_there()
    if type(owner) not in _OWNERS or numpy is None or not view.c_contiguous:
        raise Unsendable(f"a memoryview of a {type(owner).__name__}")
    start = 0
    if view.nbytes:
        looks = [numpy.frombuffer(each, numpy.uint8) for each in (view.cast("B"), owner)]
        mine, whole = (each.__array_interface__["data"][0] for each in looks)
        start = mine - whole
    shape = view.shape if view.ndim != 1 else None
    return _memory_of, (owner, start, view.nbytes, view.format, shape, view.readonly)


# ---- in the clean process ------------------------------------------------------------------------


def _view_of(kind: Any, name: str, behind: Any) -> Any:
    return getattr(kind, name)(behind)


def _memory_of(
    owner: Any, start: int, size: int, form: Any, shape: tuple[int, ...] | None, readonly: bool
) -> memoryview:
    view = memoryview(owner).cast("B")[start : start + size]
    shown: memoryview = view.cast(form) if shape is None else view.cast(form, shape)
    return shown.toreadonly() if readonly else shown
