"""Processes wait for a lock of multiprocessing that nobody gives back: its holder has died, or has
forgotten it."""

from __future__ import annotations

from collections.abc import Iterator

from ...findings import Finding
from ..analyse.library_files import QUEUES, SYNCHRONIZE
from ..analyse.lock_waits import (
    Wait,
    acquired_before,
    address,
    awaits_room,
    is_service,
    shared_owner,
    wait_of,
    waits_without_limit,
)
from ..analyse.threads_and_processes import Program, Role, WatchedProcess, WatchedThread
from ..analyse.torch_loader import reaped_workers
from ..analyse.waits import at_line, loop_waits
from ..facts import Frame
from .base import LIKELY, POSSIBLE, Cause, plural

NAME = "lock-of-the-dead"
_OF_BATCHES = "the lock of the queue that carries the batches"
_OF_THE_SCRIPT = "a lock between processes (multiprocessing)"
_FOR_THREADS = (Wait.RESULT, Wait.THREAD, Wait.NOTICE)
Waiting = list[tuple[WatchedProcess, WatchedThread]]


def find(program: Program) -> Iterator[Finding]:
    for waiting in _groups(program).values():
        holders = _may_hold(program, waiting)
        if not any(each.role is not Role.CHILD for each in holders):
            yield _finding(program, waiting, holders)


def _finding(program: Program, waiting: Waiting, holders: list[WatchedProcess]) -> Finding:
    processes = list({process.pid: process for process, _ in waiting}.values())
    _, first = waiting[0]
    dead = list(_dead(program))
    twice = next((outer for _, each in waiting for outer in acquired_before(each)), None)
    who = (
        " and ".join(each.label for each in processes)
        if len(processes) < 3
        else _several(processes)
    )
    pids = " ".join(str(each.pid) for each in processes if each.role is Role.WORKER)
    get_out = (
        f"kill -9 {pids}    (the loop raises 'DataLoader worker is killed': the script can save;"
        " start it anew, since the lock stays taken)"
        if pids
        else f"kill -INT {program.main.pid}    (KeyboardInterrupt at that line: the script can"
        " save)"
    )
    known = first.frames and not holders and (dead or twice)  # without stacks: or an event
    return Finding(
        NAME,
        LIKELY if known else POSSIBLE,
        f"{who} {plural(processes, 'waits', 'wait')} for {_lock(first)}, {at_line(first)}, and no"
        " process that is alive seems to be at work with it:"
        f" {_story(program, first, bool(dead), twice)}",
        evidence=(
            f"{who}: asleep in a semaphore between processes without a limit, at the same line in"
            " both looks",
            "every worker waits for it, or for something to do"
            if program.workers
            else "no other process of the program is there",
            *dead,
            *(f"{each.label} could have it too: {_place(each)}" for each in holders),
        ),
        get_out=(get_out,),
        prevent=(
            "take it in a `with`, which gives it back after an error too, for as short a time as"
            " possible; make a new lock when you make a new loader after an error",
            "flock on a file (fcntl.flock) is released by the kernel when its holder dies",
        ),
        pids=tuple(each.pid for each in processes),
        general=_lock(first) == _OF_BATCHES,  # a worker had it, and why that died says more
    )


def _dead(program: Program) -> Iterator[str]:
    """Return who is known to have died."""
    yield from (f"{each.label} is dead" for each in program.workers if each.dead)
    yield from (f"worker process {pid} is dead" for pid in program.missing)
    if count := reaped_workers(program):
        yield (
            f"{count} more {'worker has' if count == 1 else 'workers have'} died: the main process"
            " still has what it needed to talk to them"
        )


def _story(program: Program, thread: WatchedThread, died: bool, twice: Frame | None) -> str:
    """Return why nobody gives it back, as far as is known."""
    if twice is not None:
        return (
            f"it was taken in {twice}, by the same process, and such a lock cannot be taken twice"
        )
    if died:
        return "who had it was killed or ended, and such a lock is not given back by dying"
    loop = program.loop if loop_waits(program) else None
    main = f", or the main process has it, {at_line(loop)}, while it waits" if loop else ""
    if _lock(thread) != _OF_THE_SCRIPT:
        return f"a process that ended in the middle of a put or a get leaves it taken{main}"
    return (
        f"it was taken and not given back (an error between acquire and release){main}, or a worker"
        " of an earlier loader died with it"
    )


def _groups(program: Program) -> dict[object, Waiting]:
    """Return who waits for which lock between processes."""
    found: dict[object, Waiting] = {}
    for process in program.all:
        for thread in process.threads:
            if (
                wait_of(thread) is Wait.SEMAPHORE
                and waits_without_limit(thread)
                and _is_lock(thread)
            ):
                key = thread.now.lock_file or address(thread)
                found.setdefault(key, []).append((process, thread))
    return found


def _is_lock(thread: WatchedThread) -> bool:
    """Whether it is a lock or semaphore between processes, and no event or condition; and none
    that names its owner, which `file-lock` tells of."""
    if thread.calls("wait", SYNCHRONIZE) or awaits_room(thread):
        return False
    if shared_owner(thread):
        return False
    file = thread.now.lock_file
    if "/sem." in file or thread.in_native("SemLock", "sem_wait", "mutex_lock") is not None:
        return True
    at = thread.at
    return not file and at is not None and at.file.startswith("multiprocessing/")


def _may_hold(program: Program, waiting: Waiting) -> list[WatchedProcess]:
    """Return the living processes that may have the lock: those that do something else."""
    threads = [each for _, each in waiting]
    found = []
    for process in program.all:
        if process.dead or process.role in (Role.HELPER, Role.OUR_CLEAN_PROCESS, Role.LAUNCHER):
            continue
        if (process is program.main and _awaits_batch(program)) or _polls_unseen(process):
            continue
        free = [each for each in process.threads if each not in threads and not is_service(each)]
        at_rest = program.idle(process) and len(free) == 1
        if free and not at_rest and not (len(free) < len(process.threads) and _waits(free)):
            found.append(process)
    return found


def _awaits_batch(program: Program) -> bool:
    """Whether the main process waits for a batch, and its main thread for nothing else."""
    main = program.main.main
    if main is None or not (loop_waits(program) and main.frames):
        return False
    return main is program.loop or wait_of(main) in _FOR_THREADS


def _polls_unseen(process: WatchedProcess) -> bool:
    """Whether there are no stacks, and that it waits for a message, as who is idle does."""
    thread = process.main
    return thread is not None and not thread.frames and "poll" in thread.now.waits_in


def _waits(threads: list[WatchedThread]) -> bool:
    """Whether all of them wait for another thread of theirs, which waits for the lock."""
    return all(wait_of(each) in _FOR_THREADS and waits_without_limit(each) for each in threads)


def _lock(thread: WatchedThread) -> str:
    if thread.calls("_feed", QUEUES):
        return _OF_BATCHES
    if thread.calls("get", QUEUES):
        return "the lock of a queue between processes"
    return _OF_THE_SCRIPT


def _several(processes: list[WatchedProcess]) -> str:
    workers = [each for each in processes if each.role is Role.WORKER]
    rest = [each.label for each in processes if each.role is not Role.WORKER]
    return " and ".join([f"{len(workers)} workers", *rest])


def _place(process: WatchedProcess) -> str:
    return at_line(process.main) if process.main is not None else "its stack is not known"


CAUSE = Cause(NAME, find)
