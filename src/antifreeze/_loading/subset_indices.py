"""torch's own Subset: which samples of the dataset underneath it stands for.

torch's `Subset.__getitems__` does nothing with a batch but load its samples one after the other,
unless the dataset underneath has a `__getitems__`. Loaded one by one they are the same samples, and
whoever raises or hangs has a name.
"""

from __future__ import annotations

import contextlib
import operator
from collections.abc import Sequence
from typing import Any

from torch.utils.data import Subset

from .._core.limits import LIMITS
from .._reporting.formatting import shown

Layers = tuple[Sequence[Any], ...]  # indices of Subsets, outermost first


def underneath(dataset: Any) -> tuple[Any, Layers] | None:
    """Give the dataset under torch's Subsets, and their indices; None if there is no such Subset,
    or if what is underneath is asked for a batch as a whole."""
    dataset, layers = _peeled(dataset)
    if not layers or callable(getattr(dataset, "__getitems__", None)):
        return None
    return dataset, layers


def translated(indices: list[Any], layers: Layers) -> list[Any]:
    """Give the indices that a batch has in the dataset underneath."""
    for layer in layers:
        indices = [layer[index] for index in indices]
    return indices


def behind(dataset: Any, index: Any) -> str:
    """Say, in brackets, which sample of the dataset underneath an index of a Subset means."""
    inner = underlying(dataset, index)
    return f" ({inner} in the dataset of the Subset)" if inner else ""


def underlying(dataset: Any, index: Any) -> str:
    """Give the index that a sample of a Subset has in the dataset underneath; nothing if it is no
    Subset, or if that cannot be told. Never raises."""
    with contextlib.suppress(Exception):  # the indices may be an object of the user's own making
        _, layers = _peeled(dataset)
        if layers:
            (inner,) = translated([index], layers)
            with contextlib.suppress(TypeError):  # a tensor's item, say, is shown as its number
                inner = operator.index(inner)
            return shown(inner)
    return ""


def _peeled(dataset: Any) -> tuple[Any, Layers]:
    layers: list[Sequence[Any]] = []
    while _is_torchs(dataset) and len(layers) < LIMITS.searches.wrapped_datasets:
        layers.append(dataset.indices)
        dataset = dataset.dataset
    return dataset, tuple(layers)


def _is_torchs(dataset: Any) -> bool:
    kind: Any = type(dataset)
    return (
        issubclass(kind, Subset)
        and kind.__getitems__ is Subset.__getitems__
        and kind.__getitem__ is Subset.__getitem__
        and "__getitems__" not in vars(dataset)
    )
