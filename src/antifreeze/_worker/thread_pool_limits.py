"""Thread pools of native libraries in workers: one thread each.

Workers are there to use the cores; pools of their own in each of them would only be in each other's
way. Whoever wants it otherwise says so in `worker_init_fn`, which runs later.
"""

from __future__ import annotations

import os
import sys

import torch
from threadpoolctl import ThreadpoolController  # type: ignore[import-untyped]

# For what is loaded later, and for libraries that listen to nothing else.
VARIABLES = (
    "OMP_NUM_THREADS",
    "OPENBLAS_NUM_THREADS",
    "MKL_NUM_THREADS",
    "BLIS_NUM_THREADS",
    "NUMEXPR_NUM_THREADS",
    "OPENCV_FOR_THREADS_NUM",
    "POLARS_MAX_THREADS",
    "RAYON_NUM_THREADS",
)


def cap_pools(*, forked: bool) -> None:
    """Cap the pools of this process. A variable that the user has set stays."""
    for name in VARIABLES:
        os.environ.setdefault(name, "1")
    torch.set_num_threads(1)
    if not forked:
        # For good: a limit ends when it is told to. (In a forked process OpenBLAS answers it by
        # starting all of its threads: see `one_blas_thread` of the backends.)
        ThreadpoolController().limit(limits=1)
    if (opencv := sys.modules.get("cv2")) is not None:
        opencv.setNumThreads(1)
