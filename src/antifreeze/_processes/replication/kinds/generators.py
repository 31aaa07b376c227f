"""The generators behind `random.random`, `numpy.random.rand` and `torch.rand`: sent as themselves.

Workers seed those of their own process. A copy, in a global `from random import randint`, would go
on with the program's numbers, in each worker with the same ones.
"""

from __future__ import annotations

import importlib
import random
import sys
from collections.abc import Callable
from typing import Any

import torch

_PLACES = (
    ("random", "_inst"),
    ("numpy.random.mtrand", "_rand"),
    ("torch", "default_generator"),
)


def ways() -> dict[type, Callable[[Any], Any]]:
    """Return how random generators are sent."""
    kinds: list[type] = [random.Random, torch.Generator]
    if (numpy := sys.modules.get("numpy.random.mtrand")) is not None:
        kinds.append(numpy.RandomState)
    return dict.fromkeys(kinds, _reduce_generator)


def _reduce_generator(generator: Any) -> Any:
    for module, name in _PLACES:
        if getattr(sys.modules.get(module), name, None) is generator:
            return _global, (module, name)
    return generator.__reduce_ex__(5)


def _global(module: str, name: str) -> Any:
    return getattr(importlib.import_module(module), name)
