"""A worker waits for a lock that another thread of the main process held when it was forked."""

from __future__ import annotations

from collections.abc import Iterator

from ...findings import Confidence, Finding
from ..analyse.lock_waits import (
    HELD,
    Wait,
    acquired_before,
    acquired_by_loop,
    address,
    forked,
    held_at_fork,
    others,
    owner,
    reentrant,
    wait_of,
    waits_without_limit,
)
from ..analyse.threads_and_processes import Program, WatchedProcess, WatchedThread
from ..analyse.waits import at_line
from .base import CERTAIN, LIKELY, POSSIBLE, Cause, kill_worker, names_of, plural

NAME = "lock-held-at-fork"
_LIBRARIES = {  # whose lock it is, by a file on the way to it
    "logging/__init__.py": "logging's",
    "tqdm/": "tqdm's",
    "h5py/": "h5py's",
    "<frozen importlib": "the import system's",
}


def find(program: Program) -> Iterator[Finding]:
    stuck = [(worker, each) for worker in program.living for each in _orphaned(program, worker)]
    if not stuck:
        return
    workers = list({worker.pid: worker for worker, _ in stuck}.values())
    _, first = stuck[0]
    confidence = _confidence(program, stuck)
    yield Finding(
        NAME,
        confidence,
        f"{names_of(workers)} {plural(workers, 'waits', 'wait')} for {_lock(first)} that nobody in"
        f" {plural(workers, 'it', 'them')} holds, {at_line(first)}: {_story(first, confidence)}",
        evidence=(
            f"{names_of(workers)}: no CPU, at the same line in both looks, in a lock's acquire"
            " without a limit",
            f"no other thread in {plural(workers, 'it', 'them')} that could release it",
            *_proofs(program, stuck),
            *(
                f"thread {each.now.name!r} of the main process is {at_line(each)}"
                for each in held_at_fork(program)[:3]
                if each.frames
            ),
        ),
        get_out=(kill_worker(workers),),
        prevent=(
            "start the threads after the first `iter(loader)`, or make the lock in the worker"
            " (worker_init_fn)",
            "multiprocessing_context='forkserver', or antifreeze's loader, which starts workers"
            " from a clean process when the program has threads",
        ),
        pids=tuple(worker.pid for worker in workers),
    )


def _story(thread: WatchedThread, confidence: Confidence) -> str:
    if by_loop := acquired_by_loop(thread):
        return (
            f"the loop itself had taken it, in {by_loop[0]}, when it started the workers, and its"
            " copy in a worker stays locked for ever"
        )
    doubt = ", or the same thread takes it twice" if confidence is POSSIBLE else ""
    return (
        "another thread of the main process held it when the workers were forked, and its copy in a"
        f" worker stays locked for ever{doubt}"
    )


def _orphaned(program: Program, worker: WatchedProcess) -> list[WatchedThread]:
    """Return the threads of a forked worker that wait for a lock which none of its threads has."""
    if program.idle(worker) or not forked(program, worker):
        return []
    waiting = [
        each for each in others(worker) if wait_of(each) in HELD and waits_without_limit(each)
    ]
    if not waiting:
        return []
    by_owner = [each for each in waiting if owner(each) and not _is_in(worker, owner(each))]
    if by_owner:
        return by_owner
    rest = others(worker, *waiting)
    if not rest and len({address(each) for each in waiting}) == 1:
        return waiting
    # Threads of its own that want the lock, and a main thread that waits for them: it may have the
    # lock itself. It has not, if the main process's copy is locked too.
    waits_for_them = all(wait_of(each) in (Wait.RESULT, Wait.THREAD, Wait.NOTICE) for each in rest)
    return waiting if waits_for_them and all(map(_locked_in_parent, waiting)) else []


def _is_in(worker: WatchedProcess, tid: int) -> bool:
    return any(each.now.tid == tid for each in worker.threads)


def _locked_in_parent(thread: WatchedThread) -> bool:
    """Whether there is the same lock in the main process, and it is locked there too."""
    here, there = thread.now.lock, thread.now.lock_in_parent
    if wait_of(thread) is Wait.IMPORT or not here or not there or here[0] != 0:
        return False  # a word of 0: a semaphore that is taken
    return there[0] == 0 and here[2:] == there[2:]


def _confidence(program: Program, stuck: list[tuple[WatchedProcess, WatchedThread]]) -> Confidence:
    """A plain lock looks the same if its own thread has taken it twice; others do not. What waits
    in C code that was not seen may be no lock at all."""
    for worker, thread in stuck:
        if _owner_in_main(program, thread):
            return CERTAIN
        if reentrant(thread) and not others(worker, thread):
            return CERTAIN
    _, first = stuck[0]
    if any(acquired_before(each) for _, each in stuck):
        return POSSIBLE  # it has got the lock once: so it was free after the fork
    if acquired_by_loop(first):
        return LIKELY
    known = held_at_fork(program) or _locked_in_parent(first) or owner(first)
    return LIKELY if first.native and known else POSSIBLE


def _owner_in_main(program: Program, thread: WatchedThread) -> WatchedThread | None:
    found = owner(thread)
    return next((each for each in program.main.threads if found and each.now.tid == found), None)


def _proofs(program: Program, stuck: list[tuple[WatchedProcess, WatchedThread]]) -> Iterator[str]:
    _, first = stuck[0]
    held_by = _owner_in_main(program, first)
    if held_by is not None:
        name = held_by.now.name
        yield f"the lock's owner is thread {held_by.now.tid} ({name!r}) of the main process"
    elif reentrant(first):
        yield "its kind can be taken twice by one thread: so another thread has it"
    places = {address(each) for _, each in stuck}
    if len(stuck) > 1 and len(places) == 1 and 0 not in places:
        yield "the lock is at the same address in all of them, as one is that they were born with"
    if acquired_by_loop(first):
        yield "the source says so: the line stands in a `with` of the same lock"
    if _locked_in_parent(first):
        yield "the main process's own copy of the lock is locked too"
    elif held_by is None and not reentrant(first) and not acquired_by_loop(first):
        yield "unless the same thread has taken it twice: a plain lock looks the same then"


def _lock(thread: WatchedThread) -> str:
    for each in thread.frames:
        for mark, whose in _LIBRARIES.items():
            if each.file.startswith(mark):
                return f"{whose} lock"
    if wait_of(thread) is Wait.MUTEX:
        library = next((f.file for f in thread.native if "libc" not in f.file), "")
        return f"a lock in {library}" if library.endswith(".so") else "a lock of a library in C"
    return "a lock"


CAUSE = Cause(NAME, find)
