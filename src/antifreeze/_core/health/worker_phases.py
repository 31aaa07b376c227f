"""What a life is busy with: a few numbers, so that a word of shared memory can say it.

A life that works on a ticket goes through these steps. Each sample of a batch has a step of its
own, so a new number is progress, and an old one says which sample it is.
"""

from __future__ import annotations

from typing import Any

OURS = 0  # nothing of the user's: waiting for a ticket, or preparing
INIT = 1  # worker_init_fn
ITER = 2  # iter(dataset), or what else prepares it
WHOLE = 3  # one call for the whole batch: `__getitems__`, or a sampler's index as it is
COLLATE = 4
HAND_OVER = 5  # sending
INDICES = 6  # reading what the sampler gave
CLEAN = 7  # it is being made, in a clean process, which takes its time
PACK = 8  # the batch: objects in it are pickled by code of their own
SAMPLER = 9  # asking it for the next batch, or for its iterator; in the main process
SAMPLE = 16  # and all above: the samples of a batch, in order

OF_USER = frozenset({INIT, ITER, WHOLE, COLLATE, INDICES, PACK, SAMPLER})


def is_of_user(step: int) -> bool:
    """Say whether it is the user's code that runs."""
    return step >= SAMPLE or step in OF_USER


def index_at(step: int, indices: Any) -> Any | None:
    """Give the index of the sample that is being loaded, if it is one of a list of them."""
    place = step - SAMPLE
    if isinstance(indices, list | tuple) and 0 <= place < len(indices):
        return indices[place]
    return None
