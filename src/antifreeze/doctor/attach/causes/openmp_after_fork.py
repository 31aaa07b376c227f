"""A forked worker computes with a team of threads that only the main process has."""

from __future__ import annotations

from collections.abc import Iterator

from ...findings import Finding
from ..analyse.lock_waits import for_ever, forked, in_team
from ..analyse.threads_and_processes import IDLE_SHARE, Actor, Scene, Strand
from ..analyse.waits import at_line
from .base import CERTAIN, LIKELY, Cause, are, kill_worker, people

NAME = "openmp-after-fork"


def find(scene: Scene) -> Iterator[Finding]:
    stuck = [
        (worker, strand)
        for worker in scene.living
        for strand in worker.strands
        if in_team(strand) and for_ever(strand) and (strand.frames or strand is worker.main)
        if forked(scene, worker) and _nobody_computes(worker)
    ]
    if not stuck:
        return
    workers = list({worker.pid: worker for worker, _ in stuck}.values())
    _, first = stuck[0]
    library = in_team(first)
    yield Finding(
        NAME,
        CERTAIN if "gomp" in library else LIKELY,
        f"{people(workers)} {are(workers, 'waits', 'wait')} in {library}, {at_line(first)}, for the"
        " other threads of a parallel computation: the main process had used them before the"
        f" workers were forked, and they do not exist in {are(workers, 'it', 'them')}",
        evidence=(
            f"{people(workers)}: asleep in {library} without a limit, at the same line in both"
            " looks",
            f"all threads of {are(workers, 'it', 'them')} sleep: nobody computes what it waits for",
            "forked from the main process, not started afresh",
        ),
        get_out=(kill_worker(workers),),
        prevent=(
            "one thread a worker: no `torch.set_num_threads` in it, OMP_NUM_THREADS=1 for other"
            " libraries (threadpoolctl.threadpool_limits(1) in worker_init_fn)",
            "multiprocessing_context='forkserver', or antifreeze's loader with it",
        ),
        pids=tuple(worker.pid for worker in workers),
    )


def _nobody_computes(worker: Actor) -> bool:
    return all(_sleeps(each) for each in worker.strands)


def _sleeps(strand: Strand) -> bool:
    return strand.thread.state == "S" and strand.share < IDLE_SHARE


CAUSE = Cause(NAME, find)
