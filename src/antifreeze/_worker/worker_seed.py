"""The random state of a worker: torch's own rule, so that seeds are those people know."""

from __future__ import annotations

import contextlib
import random
import sys

import torch

from .._loading.rng_adapters import LOW_32, numpy_if_there

# Where torch uses numpy, every worker seeds it; its generators are imported on first use, which
# takes 8 ms. Better here, once, than in each worker.
if "numpy" in sys.modules:
    with contextlib.suppress(ImportError):
        import numpy.random  # noqa: F401


def seed_worker(base_seed: int, worker: int) -> int:
    """Seed the global generators of this process; give the worker's seed."""
    seed = base_seed + worker
    random.seed(seed)
    if _accelerated():
        torch.manual_seed(seed)  # of accelerators too, should the dataset use one
    else:
        torch.default_generator.manual_seed(seed)
    numpy = numpy_if_there()
    if numpy is not None:
        # numpy gets entropy of its own: from the same 32-bit seed it would repeat torch's stream.
        entropy = [worker, base_seed & LOW_32, base_seed >> 32]
        numpy.random.seed(numpy.random.SeedSequence(entropy).generate_state(4))
    return seed


def _accelerated() -> bool:
    """Say whether this torch was built for an accelerator. (To seed what is not there takes 3 ms in
    a forked process, where whatever is touched must be copied.)"""
    try:
        return torch.accelerator.current_accelerator() is not None
    except RuntimeError:  # torch 2.6 raises where later ones return None
        return False
