"""What has grown in a worker: containers of the dataset and its parts, and caches of functions.

Looked at, never asked (see `dataset_walk`). The worker tells the large ones; the main process,
whose dataset is as it was, knows how many items they began with. Sizes are estimates from a few
items.
"""

from __future__ import annotations

import functools
import itertools
import sys
from collections import deque
from collections.abc import Iterator
from typing import Any

import numpy as np
import torch

from .._core.limits import LIMITS
from .._loading.dataset_walk import things_in
from .._loading.observations import Suspect

_CONTAINERS = (list, dict, set, deque)
_CACHE: Any = functools._lru_cache_wrapper


def suspects(*roots: tuple[str, Any]) -> tuple[Suspect, ...]:
    """Give the largest containers in these named objects; of caches nobody knows the size."""
    found = []
    for path, thing in _named(roots):
        items, size = _items(thing), _size(thing, LIMITS.growth.measured_depth)
        if type(thing) is _CACHE or size >= LIMITS.growth.suspect_bytes:
            found.append(Suspect(path, items, 0 if type(thing) is _CACHE else round(size)))
    return tuple(sorted(found, key=lambda each: -each.bytes)[: LIMITS.growth.suspects])


def grown(found: tuple[Suspect, ...], *roots: tuple[str, Any]) -> tuple[Suspect, ...]:
    """Give those that hold more than the same ones do here: what came on top."""
    here = {path: _items(thing) for path, thing in _named(roots)}
    told = []
    for each in found:
        more = each.items - here.get(each.path, 0)
        if more > 0:
            told.append(Suspect(each.path, more, round(each.bytes * more / each.items)))
    return tuple(sorted(told, key=lambda each: -each.bytes))


def _named(roots: tuple[tuple[str, Any], ...]) -> Iterator[tuple[str, Any]]:
    """Yield containers and caches: inside the roots and their classes, around their methods, in
    their modules."""
    for name, root in roots:
        for path, thing in things_in((root,), name=name, classes=True):
            if issubclass(type(thing), _CONTAINERS) or type(thing) is _CACHE:
                yield path, thing
        module = sys.modules.get(str(getattr(root, "__module__", "")))
        if module is None or module is torch:
            continue
        for attribute, value in list(vars(module).items()):
            if type(value) is _CACHE or (type(value) in _CONTAINERS and attribute[:2] != "__"):
                yield f"{module.__name__}.{attribute}", value


def _items(thing: Any) -> int:
    if type(thing) is _CACHE:
        return int(thing.cache_info().currsize)
    return int(type(thing).__len__(thing))


def _size(thing: Any, depth: int) -> float:
    """Estimate the bytes of an object and what it holds."""
    kind = type(thing)
    if issubclass(kind, torch.Tensor):
        return float(thing.element_size() * thing.nelement())
    if issubclass(kind, np.ndarray):
        return float(thing.nbytes)
    try:
        size = float(sys.getsizeof(thing))
        held, count = _held(thing, kind)
        looked_at = list(itertools.islice(held, LIMITS.growth.measured_items)) if depth else []
    except Exception:  # a class that cannot say; or another thread fills it meanwhile
        return 0.0
    if looked_at:
        size += sum(_size(each, depth - 1) for each in looked_at) * count / len(looked_at)
    return size


def _held(thing: Any, kind: Any) -> tuple[Iterator[Any], int]:
    """Give what an object holds, and how much of it there is."""
    if issubclass(kind, dict):
        entries = zip(dict.keys(thing), dict.values(thing), strict=True)
        return itertools.chain.from_iterable(entries), 2 * dict.__len__(thing)
    if issubclass(kind, list | tuple | set | frozenset | deque):
        return iter(thing), len(thing)
    attributes = getattr(thing, "__dict__", None)
    if type(attributes) is dict and not isinstance(thing, type):
        return iter(attributes.values()), len(attributes)
    return iter(()), 0
