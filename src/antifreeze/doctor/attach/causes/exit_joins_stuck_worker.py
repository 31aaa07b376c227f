"""The program is over, and waits for a process or thread that does not end."""

from __future__ import annotations

from collections.abc import Iterator

from ...._linux.syscalls import Syscall
from ...findings import Confidence, Finding
from ..analyse import torch_loader as torchs
from ..analyse.library_files import LOADER, MULTIPROCESSING_UTIL, POOL, PROCESS, QUEUES
from ..analyse.lock_waits import Wait, is_service, wait_of, waits_without_limit
from ..analyse.threads_and_processes import Program, Role, WatchedProcess, WatchedThread
from ..analyse.waits import sleeps
from .base import LIKELY, POSSIBLE, Cause, names_of, plural, where

NAME = "exit-joins-stuck-worker"


def find(program: Program) -> Iterator[Finding]:
    main = program.main.main
    if main is None or program.ours or not torchs.waits_as_before(main):
        return
    if program.main.role is not Role.MAIN:
        return  # an orphan
    if not main.frames:
        yield from _unseen(program, main)
    elif main.calls("_finalize_join", QUEUES):
        yield from _own_queue(program, main)
    elif main.calls("join", POOL):
        yield from _pool(program, main)
    elif main.calls("_shutdown", "threading.py"):
        yield from _thread(program, main)
    elif main.calls("join", PROCESS):
        yield from _process(program, main)
    elif main.calls("_shutdown_workers", LOADER) and main.calls("join", "threading.py"):
        yield from _pin_thread(program, main)
    elif main.calls("join", "threading.py"):
        yield from _thread(program, main)


def _process(program: Program, main: WatchedThread) -> Iterator[Finding]:
    awaited = _awaited(program, main)
    at_exit = main.calls("_exit_function", MULTIPROCESSING_UTIL) is not None
    by_torch = main.calls("_shutdown_workers", LOADER) is not None
    if not at_exit:
        # To wait for a process that works is no fault; torch waits five seconds, then asks harder.
        awaited = [each for each in awaited if _cannot_send(each) or (by_torch and _stuck(each))]
    if not awaited:
        return
    over = "the program is over" if at_exit else "the loop is over" if by_torch else "the program"
    waits = "waits" if over == "the program" else "and waits"
    sure: Confidence = LIKELY if at_exit or any(map(_cannot_send, awaited)) else POSSIBLE
    who = _names(awaited)
    first = "it" if len(awaited) == 1 else awaited[0].label
    left = [
        *awaited,
        *(each for each in torchs.workers(program) if each not in awaited and at_exit),
    ]
    yield Finding(
        NAME,
        sure,
        f"{over} {waits} for {who} to end{_place(main)}; {first} {_doing(awaited[0])}",
        evidence=(
            f"the main thread is in `join` in both looks, {program.seconds:.1f} s apart",
            *(f"{each.label} {_doing(each)}" for each in awaited[:4]),
            *([_at_exit(awaited)] * at_exit),
            *(
                ["torch waits five seconds for each worker, then asks it to end (SIGTERM)"]
                * (by_torch and not at_exit)
            ),
        ),
        get_out=(
            f"kill -9 {' '.join(str(each.pid) for each in left)}    (the main process then goes"
            f" on; {_lost(left)})",
        ),
        prevent=(
            "take everything out of a queue before you join who fills it",
            "do not ignore or handle SIGTERM in workers; put a limit on whatever a sample waits"
            " for (timeout=)",
            "antifreeze's loader ends its workers with SIGKILL after a moment",
        ),
        pids=tuple(each.pid for each in (program.main, *awaited)),
    )


def _pool(program: Program, main: WatchedThread) -> Iterator[Finding]:
    """Find a pool whose processes have work that does not end."""
    busy = [
        (each, thread)
        for each in program.others
        if (thread := each.main) is not None
        and thread.calls("worker", POOL)
        and not thread.calls("get", QUEUES)
        and torchs.waits_as_before(thread)
    ]
    if not busy:
        return
    pid = program.main.pid
    yield Finding(
        NAME,
        POSSIBLE if any(sleeps(thread) for _, thread in busy) else LIKELY,
        f"the main thread waits for a pool of processes to end{_place(main)}, and"
        f" {busy[0][0].label} of it is still {where(busy[0][1])}",
        evidence=(
            "the main thread is in the pool's `join` in both looks",
            *(f"{each.label} is {where(thread)} in both looks" for each, thread in busy[:4]),
        ),
        get_out=(
            f"kill -INT {pid}    (KeyboardInterrupt where it joins; at Python's end the pool is"
            " then ended too: only what it has under way is lost)",
        ),
        prevent=("terminate() a pool whose results are not needed any more, instead of close()",),
        pids=(pid, *(each.pid for each, _ in busy)),
    )


def _at_exit(awaited: list[WatchedProcess]) -> str:
    if all(each.role is Role.WORKER for each in awaited):
        return "Python has asked them to end (SIGTERM) and waits without a limit"
    return (
        "at its end Python waits without a limit for the processes that the script has started, and"
        " asks only daemons to end"
    )


def _awaited(program: Program, main: WatchedThread) -> list[WatchedProcess]:
    call = main.now.call
    children = [each for each in (*program.living, *program.others) if not each.dead]
    if call and call[0] == Syscall.WAIT4:
        children = [each for each in children if each.pid == call[1]]
    else:
        children = [each for each in children if each.role is Role.WORKER]
    there = [each for each in children if each.before is not None]
    return [each for each in there if not each.stopped]


def _place(main: WatchedThread) -> str:
    return f", {where(main)}" if main.own_line else ""


def _cannot_send(process: WatchedProcess) -> bool:
    """Whether it wants to end, and cannot before it has sent what it has."""
    ends = process.main is not None and process.main.calls("_finalize_join", QUEUES)
    return bool(ends) and any(map(torchs.writes_in_vain, torchs.feeders(process)))


def _stuck(process: WatchedProcess) -> bool:
    return process.main is not None and process.main.stuck


def _doing(process: WatchedProcess) -> str:
    if _cannot_send(process):
        return "still has something to send, the pipe is full, and nobody reads"
    if process.main is None or not process.main.frames:
        return "has not ended"
    return f"is still {where(process.main)}"


def _names(processes: list[WatchedProcess]) -> str:
    workers = all(each.role is Role.WORKER for each in processes)
    return names_of(processes) if workers or len(processes) == 1 else f"{len(processes)} processes"


def _lost(processes: list[WatchedProcess]) -> str:
    one = plural(processes, "that process has", "those processes have")
    if any(map(_cannot_send, processes)):
        return f"what {one} not sent is lost"
    return f"only what {one} under way is lost"


def _unseen(program: Program, main: WatchedThread) -> Iterator[Finding]:
    """Return what the kernel alone tells: whoever waits for a worker of torch's to end, ends."""
    if main.now.call[:1] != (Syscall.WAIT4,):
        return
    for worker in _awaited(program, main):
        if worker.role is Role.WORKER:
            yield Finding(
                NAME,
                POSSIBLE,
                f"the main process waits for {worker.label} to end, which has not",
                evidence=(f"the main thread is in wait4({worker.pid}) in both looks",),
                get_out=(f"kill -9 {worker.pid}    (the main process then goes on)",),
                pids=(program.main.pid, worker.pid),
            )


def _pin_thread(program: Program, main: WatchedThread) -> Iterator[Finding]:
    stuck = [each for each in torchs.pin_threads(program) if each.frames and each.stuck]
    if not stuck:
        return
    what = f"the loop is over and waits for the thread that pins memory{_place(main)}"
    yield _of_thread(program, what, stuck[0], over=True)


def _thread(program: Program, main: WatchedThread) -> Iterator[Finding]:
    """Name a thread that is waited for and waits itself, where no thread is at work to help it."""
    if not all(torchs.waits_as_before(each) for each in program.main.threads if each.frames):
        return
    over = main.calls("_shutdown", "threading.py") is not None
    what = (
        "the program is over, but for its" if over else f"the main thread waits{_place(main)}, for"
    )
    others = [each for each in program.main.threads if each is not main and each.frames]
    full = [each for each in others if each.calls("put", "queue.py")]
    alone = over and not torchs.workers(program) and all(_expects_nothing(each) for each in others)
    kept = [each for each in others if alone and (_waits_for_word(each) or sleeps(each))]
    for each in (full or kept)[:1]:
        yield _of_thread(program, f"{what} thread {each.now.name!r}", each, over)


def _expects_nothing(thread: WatchedThread) -> bool:
    """Whether nothing from outside can wake a thread: it is no server."""
    return wait_of(thread) is not None or sleeps(thread) or is_service(thread)


def _waits_for_word(thread: WatchedThread) -> bool:
    """Whether it waits for an event or for something in a queue, without a limit, in the script's
    own code: the program has ended, and nobody is left to say it."""
    return (
        wait_of(thread) is Wait.NOTICE
        and waits_without_limit(thread)
        and thread.own_line is not None
    )


def _of_thread(program: Program, what: str, thread: WatchedThread, over: bool) -> Finding:
    full = thread.calls("put", "queue.py")
    waits = (
        "waits for room in a queue that nobody empties"
        if full
        else "waits for word that nobody is left to give"
        if _waits_for_word(thread)
        else "sleeps, and is no daemon"
        if over and sleeps(thread)
        else "has not moved"
    )
    pid = program.main.pid
    return Finding(
        NAME,
        POSSIBLE if sleeps(thread) else LIKELY,
        f"{what}, which {waits}, {where(thread)}",
        evidence=(
            "the main thread waits for threads to end, in both looks",
            f"thread {thread.now.name!r} is {where(thread)} in both looks, without CPU",
            *(["no other thread of the process does anything"] * (full is not None)),
        ),
        get_out=(
            f"kill -9 {pid}    (the program's own code is over: what it has saved is saved)"
            if over
            else f"kill -INT {pid}    (KeyboardInterrupt where it joins: the script can save; its"
            f" end may then wait for the same thread: kill -9 {pid})",
        ),
        prevent=(
            "make such a thread a daemon (daemon=True), or tell it to end and empty its queue"
            " before the program ends",
            *(
                ["see why nobody empties it: whoever took from it may have ended with an error"]
                * (full is not None)
            ),
        ),
        pids=(pid,),
    )


def _own_queue(program: Program, main: WatchedThread) -> Iterator[Finding]:
    if not any(torchs.writes_in_vain(each) for each in torchs.feeders(program.main)):
        return
    yield Finding(
        NAME,
        LIKELY,
        f"the program is over{_place(main)}, but for a queue that still has something to send:"
        " the pipe is full, and nobody reads",
        evidence=(
            "the main thread waits for its QueueFeederThread to end, in both looks",
            "that thread is in a write into a full pipe, in both looks",
        ),
        get_out=(
            f"kill -9 {program.main.pid}    (the program's own code is over; what the queue has not"
            " sent is lost)",
        ),
        prevent=("call `queue.cancel_join_thread()` where what is left in it may be lost",),
        pids=(program.main.pid,),
    )


CAUSE = Cause(NAME, find)
