"""Where this process stands among others: rank and world size, here and on this machine.

The one place that knows. A process group that is set up says it; before that, the variables that
torchrun, accelerate and SLURM set; else there is one process.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping

from .._core.frozen_values import frozen


@frozen
class Ranks:
    rank: int = 0
    world_size: int = 1
    local_rank: int = 0
    local_world_size: int = 1


def ranks(environ: Mapping[str, str] = os.environ) -> Ranks:
    rank = _number(environ, "RANK", "SLURM_PROCID", default=0)
    world = _number(environ, "WORLD_SIZE", "SLURM_NTASKS", default=1)
    local = _number(environ, "LOCAL_RANK", "SLURM_LOCALID", default=0)
    local_world = _number(environ, "LOCAL_WORLD_SIZE", "SLURM_NTASKS_PER_NODE", default=1)
    distributed = sys.modules.get("torch.distributed")
    if distributed is not None and distributed.is_available() and distributed.is_initialized():
        rank, world = distributed.get_rank(), distributed.get_world_size()
    return Ranks(rank, max(world, rank + 1), local, max(local_world, local + 1))


def who() -> str:
    """Say who speaks, at the beginning of a line: with its rank where there are several."""
    here = ranks()
    return f"antifreeze, rank {here.rank}" if here.world_size > 1 else "antifreeze"


def _number(environ: Mapping[str, str], *names: str, default: int) -> int:
    for name in names:
        value = environ.get(name, "")
        if value.isdigit():
            return int(value)
    return default
