"""A forked worker computes with a team of threads that only the main process has."""

from __future__ import annotations

from collections.abc import Iterator

from ...findings import Finding
from ..analyse.lock_waits import forked, in_team, waits_without_limit
from ..analyse.threads_and_processes import IDLE_SHARE, Program, WatchedProcess, WatchedThread
from ..analyse.waits import at_line
from .base import CERTAIN, LIKELY, Cause, kill_worker, names_of, plural

NAME = "openmp-after-fork"


def find(program: Program) -> Iterator[Finding]:
    stuck = [
        (worker, thread)
        for worker in program.living
        for thread in worker.threads
        if in_team(thread)
        and waits_without_limit(thread)
        and (thread.frames or thread is worker.main)
        if forked(program, worker) and _nobody_computes(worker)
    ]
    if not stuck:
        return
    workers = list({worker.pid: worker for worker, _ in stuck}.values())
    _, first = stuck[0]
    library = in_team(first)
    yield Finding(
        NAME,
        CERTAIN if "gomp" in library else LIKELY,
        f"{names_of(workers)} {plural(workers, 'waits', 'wait')} in {library}, {at_line(first)},"
        " for the other threads of a parallel computation: the main process had used them before"
        f" the workers were forked, and they do not exist in {plural(workers, 'it', 'them')}",
        evidence=(
            f"{names_of(workers)}: asleep in {library} without a limit, at the same line in both"
            " looks",
            f"all threads of {plural(workers, 'it', 'them')} sleep: nobody computes what it waits"
            " for",
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


def _nobody_computes(worker: WatchedProcess) -> bool:
    return all(_sleeps(each) for each in worker.threads)


def _sleeps(thread: WatchedThread) -> bool:
    return thread.now.state == "S" and thread.share < IDLE_SHARE


CAUSE = Cause(NAME, find)
