"""How far ahead of torch's loader a sampler may be asked without anybody noticing.

Torch asks its sampler for `prefetch_factor * num_workers` batches first, and for one more whenever
the loop receives one. Bundles of tiny batches want more of them, sooner. That can be seen: a
sampler of the user's may look at the training loop when it is asked, and a generator that the
program shares with its sampler has been drawn from when a loop is left early. So it is done for
torch's own samplers only, and as far as they draw nothing that others see.
"""

from __future__ import annotations

import sys
from typing import Any

from torch.utils.data import (
    BatchSampler,
    RandomSampler,
    SequentialSampler,
    SubsetRandomSampler,
    WeightedRandomSampler,
)

# They draw once, when they are asked for their first index, and so does torch's loader.
_DRAW_AT_FIRST = (SequentialSampler, SubsetRandomSampler, WeightedRandomSampler)


def free_draws(sampler: Any) -> int | None:
    """Return how many batches of an epoch may be drawn at any time; None: all of them.

    `sampler` yields what is loaded at a time: batches of indices, or single ones.
    """
    size = 1
    if type(sampler) is BatchSampler:
        sampler, size = sampler.sampler, sampler.batch_size
    kind = type(sampler)
    distributed: Any = sys.modules.get("torch.utils.data.distributed")
    if kind is SubsetRandomSampler and not isinstance(sampler.indices, list | tuple | range):
        return 0  # an object of the user's, asked for each index
    if kind in _DRAW_AT_FIRST or (distributed and kind is distributed.DistributedSampler):
        return None
    if kind is not RandomSampler:
        return 0
    if sampler.generator is None:
        return None  # it has one of its own, seeded when it is asked for its first index
    whole = not sampler.replacement and sampler.num_samples == len(sampler.data_source)
    # The last batch meets the end, where the sampler draws another permutation.
    return max(0, -(-sampler.num_samples // size) - 1) if whole else 0
