"""The random state of a worker: torch's own rule, so that seeds are those people know."""

from __future__ import annotations

import random
import sys
from typing import Any

import torch

_LOW_32 = 0xFFFFFFFF


def seed_worker(base_seed: int, worker: int) -> int:
    """Seed the global generators of this process; give the worker's seed."""
    seed = base_seed + worker
    random.seed(seed)
    torch.manual_seed(seed)
    numpy = _numpy()
    if numpy is not None:
        # numpy gets entropy of its own: from the same 32-bit seed it would repeat torch's stream.
        entropy = [worker, base_seed & _LOW_32, base_seed >> 32]
        numpy.random.seed(numpy.random.SeedSequence(entropy).generate_state(4))
    return seed


def _numpy() -> Any:
    """Give numpy if torch could use it; a program without numpy must work too."""
    if "numpy" in sys.modules:
        return sys.modules["numpy"]
    try:
        import numpy
    except ImportError:
        return None
    return numpy
