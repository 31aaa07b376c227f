"""Many more threads want to run than there are cores."""

from __future__ import annotations

import math
from collections.abc import Iterator

from ...findings import Finding
from ..analyse.threads_and_processes import Program, WatchedProcess
from ..facts import Look
from .base import LIKELY, Cause

NAME = "oversubscription"
_TIMES = 3.0  # as many as cores: below that the kernel shares well enough
_WORKED = 0.01  # of a core: on a crowded machine a thread of a pool gets no more
_POOLS = ("omp", "blas", "mkl", "tbb", "opencv")


def find(program: Program) -> Iterator[Finding]:
    cores = _cores(program)
    least = 1 if program.seen else 4  # without stacks, threads of Python's look the same
    crowded = [each for each in program.living if _pool(each) >= least]
    if len(crowded) < 2:
        return
    total = sum(_pool(each) + 1 for each in crowded)
    wanting = [_running(look, crowded) for look in program.case.looks]
    if total < _TIMES * cores or min(wanting) <= cores:
        return
    pools = sorted(
        {
            name
            for each in crowded
            for name in each.now.libraries
            if any(part in name for part in _POOLS)
        }
    )
    set_to = program.main.now.settings.get("OMP_NUM_THREADS", "")
    yield Finding(
        NAME,
        LIKELY,
        f"{total} threads share {cores} cores: {len(crowded)} workers have a pool of"
        " threads each (BLAS, OpenMP), they take the cores away from each other, and all of it"
        " crawls",
        evidence=(
            *(f"{each.label}: {_pool(each)} threads of a pool at work" for each in crowded[:4]),
            f"threads that wanted to run: {' and '.join(map(str, wanting))} at the two looks",
            *([f"libraries with pools: {', '.join(pools[:5])}"] if pools else []),
            f"OMP_NUM_THREADS is {set_to or 'not set'}",
        ),
        get_out=(
            "nothing is stuck, and a pool cannot be made smaller from outside: stop it at a"
            " checkpoint and start it with OMP_NUM_THREADS=1 MKL_NUM_THREADS=1"
            " OPENBLAS_NUM_THREADS=1",
        ),
        prevent=(
            "one thread in each worker: OMP_NUM_THREADS=1, cv2.setNumThreads(0), or"
            " threadpoolctl.threadpool_limits(1) in worker_init_fn",
            "antifreeze's loader gives workers one thread of every pool it knows",
        ),
        pids=tuple(each.pid for each in crowded),
    )


def _pool(process: WatchedProcess) -> int:
    """Count the threads beside the main one that have computed and are none of Python's."""
    return sum(
        thread.share >= _WORKED and not thread.frames
        for thread in process.threads
        if thread is not process.main
    )


def _running(look: Look, processes: list[WatchedProcess]) -> int:
    """Count the threads of these that run, or want to, at one look."""
    pids = {each.pid for each in processes}
    return sum(
        thread.state == "R"
        for process in look.processes
        if process.pid in pids
        for thread in process.threads
    )


def _cores(program: Program) -> int:
    """Return the cores that the program may use."""
    allowed = program.main.now.cores or program.machine.cores or 1
    quota = program.machine.group.quota_cores
    return min(allowed, math.ceil(quota)) if quota > 0 else allowed


CAUSE = Cause(NAME, find)
