"""A forked worker waits for threads of a native library that only the main process has."""

from __future__ import annotations

from collections.abc import Iterator

from ...._core.native_pool_names import NativePool, pool_used, pools_among
from ...findings import Finding
from ..analyse.progress import makes_progress, watched_s
from ..analyse.threads_and_processes import Program, WatchedProcess, WatchedThread
from ..analyse.waits import at_line, in_sample, loop_waits
from ..analyse.workers_by_loader import and_the_loop_waits
from .base import LIKELY, Cause, kill_worker, names_of, plural

NAME = "native-pool-after-fork"


def find(program: Program) -> Iterator[Finding]:
    if not loop_waits(program):
        return
    names = [each.now.name for each in program.main.threads if each is not program.main.main]
    groups: dict[str, list[tuple[WatchedProcess, WatchedThread, NativePool, list[str]]]] = {}
    for worker in program.living:
        thread = worker.main
        if thread is None or not _hangs_in_a_copy(program, worker):
            continue
        used = pool_used(names, [each.file for each in thread.own_frames])
        if used is not None and not _has(worker, used[0]):
            groups.setdefault(used[0].library, []).append((worker, thread, *used))
    for found in groups.values():
        yield _finding(program, found)


def _hangs_in_a_copy(program: Program, worker: WatchedProcess) -> bool:
    """Whether a worker was forked from the main process, and does not get on with a sample."""
    forked = worker.now.command == program.main.now.command
    return forked and in_sample(program, worker) and not makes_progress(program, worker)


def _has(worker: WatchedProcess, pool: NativePool) -> bool:
    """Whether a worker has threads of the library itself: it made its pool anew."""
    mine = pools_among(each.now.name for each in worker.threads if each is not worker.main)
    return any(each == pool for each, _ in mine)


def _finding(
    program: Program, found: list[tuple[WatchedProcess, WatchedThread, NativePool, list[str]]]
) -> Finding:
    workers = [worker for worker, *_ in found]
    _, first, pool, threads = found[0]
    shown = ", ".join(list(dict.fromkeys(threads))[:4])
    return Finding(
        NAME,
        LIKELY,
        f"{names_of(workers)} {plural(workers, 'waits', 'wait')} in {pool.library},"
        f" {at_line(first)}:"
        f" its threads ({shown}) run in the main process alone, since a fork does not copy threads,"
        " and nobody is left who could answer"
        f"{and_the_loop_waits(program, workers, plural(workers, 'it', 'them'))}",
        evidence=(
            *(
                f"{worker.label}: {thread.share:.0%} of a core, in {thread.at}; nothing was read or"
                f" written in {watched_s(program):.0f} s"
                for worker, thread, *_ in found[:4]
            ),
            f"the main process has {len(threads)} threads of {pool.library} ({shown}),"
            f" {plural(workers, 'the worker', 'the workers')} none",
        ),
        get_out=(kill_worker(workers),),
        prevent=(
            f"use {pool.library} in the workers only, or make its clients there: on first use in"
            " `__getitem__`, or in worker_init_fn, never before the first `iter(loader)`",
            "multiprocessing_context='forkserver' or 'spawn'; antifreeze's loader starts workers"
            " from a clean process when the program has such threads and the dataset can be sent",
        ),
        pids=tuple(worker.pid for worker in workers),
    )


CAUSE = Cause(NAME, find)
