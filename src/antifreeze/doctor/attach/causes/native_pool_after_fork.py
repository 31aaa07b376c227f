"""A forked worker waits for threads of a native library that only the main process has."""

from __future__ import annotations

from collections.abc import Iterator

from ...._core.native_pools import NativePool, pool_used, pools_among
from ...findings import Finding
from ..analyse.progress import gets_on, watched_s
from ..analyse.threads_and_processes import Actor, Scene, Strand
from ..analyse.waits import at_line, in_sample, loop_waits
from ..analyse.workers_by_loader import and_the_loop_waits
from .base import LIKELY, Cause, are, kill_worker, people

NAME = "native-pool-after-fork"


def find(scene: Scene) -> Iterator[Finding]:
    if not loop_waits(scene):
        return
    names = [each.thread.name for each in scene.main.strands if each is not scene.main.main]
    groups: dict[str, list[tuple[Actor, Strand, NativePool, list[str]]]] = {}
    for worker in scene.living:
        strand = worker.main
        if strand is None or not _hangs_in_a_copy(scene, worker):
            continue
        used = pool_used(names, [each.file for each in strand.own_frames])
        if used is not None and not _has(worker, used[0]):
            groups.setdefault(used[0].library, []).append((worker, strand, *used))
    for found in groups.values():
        yield _finding(scene, found)


def _hangs_in_a_copy(scene: Scene, worker: Actor) -> bool:
    """Whether a worker was forked from the main process, and does not get on with a sample."""
    forked = worker.process.command == scene.main.process.command
    return forked and in_sample(scene, worker) and not gets_on(scene, worker)


def _has(worker: Actor, pool: NativePool) -> bool:
    """Whether a worker has threads of the library itself: it made its pool anew."""
    mine = pools_among(each.thread.name for each in worker.strands if each is not worker.main)
    return any(each == pool for each, _ in mine)


def _finding(scene: Scene, found: list[tuple[Actor, Strand, NativePool, list[str]]]) -> Finding:
    workers = [worker for worker, *_ in found]
    _, first, pool, threads = found[0]
    shown = ", ".join(list(dict.fromkeys(threads))[:4])
    return Finding(
        NAME,
        LIKELY,
        f"{people(workers)} {are(workers, 'waits', 'wait')} in {pool.library}, {at_line(first)}:"
        f" its threads ({shown}) run in the main process alone, since a fork does not copy threads,"
        " and nobody is left who could answer"
        f"{and_the_loop_waits(scene, workers, are(workers, 'it', 'them'))}",
        evidence=(
            *(
                f"{worker.label}: {strand.share:.0%} of a core, in {strand.at}; nothing was read or"
                f" written in {watched_s(scene):.0f} s"
                for worker, strand, *_ in found[:4]
            ),
            f"the main process has {len(threads)} threads of {pool.library} ({shown}),"
            f" {are(workers, 'the worker', 'the workers')} none",
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
