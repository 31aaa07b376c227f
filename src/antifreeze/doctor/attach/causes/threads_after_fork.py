"""A forked worker waits for a thread that it has not: only the main process has, or had, it."""

from __future__ import annotations

from collections.abc import Iterator

from ...findings import Confidence, Finding
from ..analyse.lock_waits import (
    Wait,
    for_ever,
    forked,
    held_at_fork,
    is_service,
    others,
    queue_awaited,
    same_line,
    wait_of,
)
from ..analyse.threads_and_processes import Actor, Scene, Strand
from ..analyse.waits import at_line
from .base import CERTAIN, LIKELY, POSSIBLE, Cause, are, kill_worker, people

NAME = "threads-after-fork"
_POOL = "concurrent/futures/"
_LOOP = "asyncio/base_events.py"
_EVERYWHERE = ("threading.py", "queue.py", "torch/", "<frozen", "<string>")  # says nothing of whose


def find(scene: Scene) -> Iterator[Finding]:
    stuck = [
        (worker, strand)
        for worker in scene.living
        if (strand := worker.main) is not None
        and not scene.idle(worker)
        and wait_of(strand) in (Wait.RESULT, Wait.NOTICE)
        and (for_ever(strand) or same_line(strand))
        and not [each for each in others(worker, strand) if each.frames]
        and not _pool(worker)
        and forked(scene, worker)
    ]
    if not stuck:
        return
    workers = [worker for worker, _ in stuck]
    _, first = stuck[0]
    pool = _pool(scene.main)
    threads = pool or _related(scene, first)
    story = (
        "the thread pool or event loop was started in the main process, and was not copied by fork"
        if threads
        else "the thread that should answer has ended (an error ends it, and nobody else), or was"
        " started in the main process and not copied by fork"
    )
    yield Finding(
        NAME,
        _confidence(first, workers[0], pool, threads),
        f"{people(workers)} {are(workers, 'waits', 'wait')} for {_what(first)}, {at_line(first)},"
        f" and there is no other thread in {are(workers, 'it', 'them')}: {story}",
        evidence=(
            f"{people(workers)}: no CPU, at the same line in both looks: {first.at}",
            f"{are(workers, 'it has', 'they have')} no other thread that could answer",
            *(
                f"thread {each.thread.name!r} of the main process: {each.frames[0]}"
                for each in threads[:3]
            ),
        ),
        get_out=(kill_worker(workers),),
        prevent=(
            "make the pool, event loop, client or thread in the worker: on first use in"
            " `__getitem__`, or in worker_init_fn",
            "multiprocessing_context='forkserver', where the dataset makes it anew when unpickled",
            *([] if threads else ["have the thread tell when it fails, and give the wait a limit"]),
        ),
        pids=tuple(worker.pid for worker in workers),
    )


def _what(strand: Strand) -> str:
    if wait_of(strand) is Wait.RESULT:
        return "a result of another thread"
    return queue_awaited(strand) or "a word from another thread"


def _related(scene: Scene, strand: Strand) -> list[Strand]:
    """Give the threads of the main process that run code of a file which a worker is in, the
    script's or a library's: those may be what it waits for."""
    places = {each.file for each in strand.own_frames if not each.file.startswith(_EVERYWHERE)}
    return [
        each for each in held_at_fork(scene) if places & {frame.file for frame in each.own_frames}
    ]


def _pool(actor: Actor) -> list[Strand]:
    """Give the threads of a process that work for others: of a pool, or of an event loop."""
    return [
        each
        for each in actor.strands
        if each is not actor.main
        and any(
            frame.file == _LOOP
            or (frame.file.startswith(_POOL) and frame.name.endswith(("_worker", "run")))
            for frame in each.frames
        )
    ]


def _confidence(
    strand: Strand, worker: Actor, pool: list[Strand], threads: list[Strand]
) -> Confidence:
    """A result comes from a thread, and threads of C may give one too: so there must be none."""
    unknown = [each for each in worker.strands if not each.frames and is_service(each)]
    if wait_of(strand) is Wait.RESULT and pool and for_ever(strand) and not unknown:
        return CERTAIN
    if pool or threads or wait_of(strand) is Wait.RESULT:
        return LIKELY
    return LIKELY if queue_awaited(strand) and for_ever(strand) and not unknown else POSSIBLE


CAUSE = Cause(NAME, find)
