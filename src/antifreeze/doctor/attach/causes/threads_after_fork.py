"""A forked worker waits for a thread that it has not: only the main process has, or had, it."""

from __future__ import annotations

from collections.abc import Iterator

from ...findings import Confidence, Finding
from ..analyse.library_files import EVENT_LOOP
from ..analyse.lock_waits import (
    Wait,
    forked,
    held_at_fork,
    is_service,
    others,
    queue_awaited,
    same_line,
    wait_of,
    waits_without_limit,
)
from ..analyse.threads_and_processes import Program, WatchedProcess, WatchedThread
from ..analyse.waits import at_line
from .base import CERTAIN, LIKELY, POSSIBLE, Cause, kill_worker, names_of, plural

NAME = "threads-after-fork"
_POOL = "concurrent/futures/"
_EVERYWHERE = ("threading.py", "queue.py", "torch/", "<frozen", "<string>")  # says nothing of whose


def find(program: Program) -> Iterator[Finding]:
    stuck = [
        (worker, thread)
        for worker in program.living
        if (thread := worker.main) is not None
        and not program.idle(worker)
        and wait_of(thread) in (Wait.RESULT, Wait.NOTICE)
        and (waits_without_limit(thread) or same_line(thread))
        and not [each for each in others(worker, thread) if each.frames]
        and not _pool(worker)
        and forked(program, worker)
    ]
    if not stuck:
        return
    workers = [worker for worker, _ in stuck]
    _, first = stuck[0]
    pool = _pool(program.main)
    threads = pool or _related(program, first)
    story = (
        "the thread pool or event loop was started in the main process, and was not copied by fork"
        if threads
        else "the thread that should answer has ended (an error ends it, and nobody else), or was"
        " started in the main process and not copied by fork"
    )
    yield Finding(
        NAME,
        _confidence(first, workers[0], pool, threads),
        f"{names_of(workers)} {plural(workers, 'waits', 'wait')} for {_what(first)},"
        f" {at_line(first)},"
        f" and there is no other thread in {plural(workers, 'it', 'them')}: {story}",
        evidence=(
            f"{names_of(workers)}: no CPU, at the same line in both looks: {first.at}",
            f"{plural(workers, 'it has', 'they have')} no other thread that could answer",
            *(
                f"thread {each.now.name!r} of the main process: {each.frames[0]}"
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


def _what(thread: WatchedThread) -> str:
    if wait_of(thread) is Wait.RESULT:
        return "a result of another thread"
    return queue_awaited(thread) or "a word from another thread"


def _related(program: Program, thread: WatchedThread) -> list[WatchedThread]:
    """Return the threads of the main process that run code of a file which a worker is in, the
    script's or a library's: those may be what it waits for."""
    places = {each.file for each in thread.own_frames if not each.file.startswith(_EVERYWHERE)}
    return [
        each for each in held_at_fork(program) if places & {frame.file for frame in each.own_frames}
    ]


def _pool(process: WatchedProcess) -> list[WatchedThread]:
    """Return the threads of a process that work for others: of a pool, or of an event loop."""
    return [
        each
        for each in process.threads
        if each is not process.main
        and any(
            frame.file == EVENT_LOOP
            or (frame.file.startswith(_POOL) and frame.name.endswith(("_worker", "run")))
            for frame in each.frames
        )
    ]


def _confidence(
    thread: WatchedThread,
    worker: WatchedProcess,
    pool: list[WatchedThread],
    threads: list[WatchedThread],
) -> Confidence:
    """A result comes from a thread, and threads of C may give one too: so there must be none."""
    unknown = [each for each in worker.threads if not each.frames and is_service(each)]
    if wait_of(thread) is Wait.RESULT and pool and waits_without_limit(thread) and not unknown:
        return CERTAIN
    if pool or threads or wait_of(thread) is Wait.RESULT:
        return LIKELY
    return (
        LIKELY
        if queue_awaited(thread) and waits_without_limit(thread) and not unknown
        else POSSIBLE
    )


CAUSE = Cause(NAME, find)
