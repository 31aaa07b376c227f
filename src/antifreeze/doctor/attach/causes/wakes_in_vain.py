"""A worker wakes up again and again, reads nothing, and sleeps again at the same line."""

from __future__ import annotations

from collections.abc import Iterator

from ...findings import Finding
from ..analyse.lock_waits import Wait, wait_of
from ..analyse.progress import exchanged, makes_progress, watched_s
from ..analyse.threads_and_processes import Program, WatchedProcess, WatchedThread
from ..analyse.waits import at_line, in_sample, loop_waits, sleeps
from ..analyse.workers_by_loader import and_the_loop_waits
from .base import POSSIBLE, Cause, kill_worker, names_of, plural
from .idle_event_loop import idle_loop

NAME = "wakes-in-vain"
_LATE_S = 3.0  # watched without a byte: who waits for a server that is only slow got one by then
_LEAST_WAKES, _LEAST_RATE = 2, 1.0  # between the last looks, and in a second: that is often
_MOST_SHARE = 0.1  # of a core: who uses more computes


def find(program: Program) -> Iterator[Finding]:
    if not loop_waits(program) or watched_s(program) < _LATE_S:
        return
    if any(exchanged(program, each) for each in program.living):
        return  # others have sent batches: it may wait for its turn, or for what they bring
    found = [
        (worker, thread)
        for worker in program.living
        if in_sample(program, worker)
        and (thread := worker.main) is not None
        and wakes_in_vain(program, worker, thread)
        and not program.has_children(worker)
        and idle_loop(program, worker) is None  # which knows more of it
    ]
    if not found:
        return
    workers = [worker for worker, _ in found]
    _, first = found[0]
    seconds = watched_s(program)
    yield Finding(
        NAME,
        POSSIBLE,
        f"{names_of(workers)} {plural(workers, 'wakes', 'wake')} up again and again and"
        f" {plural(workers, 'sleeps', 'sleep')} again at the same line, {at_line(first)}: nothing"
        f" was read or written and no batch came in {seconds:.0f} s, so what"
        f" {plural(workers, 'it waits', 'they wait')} for may never come"
        f"{and_the_loop_waits(program, workers, plural(workers, 'it', 'them'))}",
        evidence=(
            *(
                f"{worker.label}: woke up {thread.wakeups} times in the last {program.seconds:.1f}"
                f" s, used {thread.share:.0%} of a core, in {thread.at}"
                for worker, thread in found[:4]
            ),
            f"no byte was read or written, in files, pipes or connections, in {seconds:.0f} s",
        ),
        get_out=(
            f"look again, in a minute: antifreeze attach {program.main.pid}    (if the same line is"
            " named, nothing will come)",
            kill_worker(workers),
        ),
        prevent=(
            "make clients, channels, event loops and thread pools in the worker, on first use: a"
            " fork copies none of their threads",
            "give the call a limit of time, so that it becomes an error that says what was missing",
        ),
        pids=tuple(worker.pid for worker in workers),
        general=True,
    )


def wakes_in_vain(program: Program, process: WatchedProcess, thread: WatchedThread) -> bool:
    """Whether a thread wakes up, and nothing comes of it."""
    if thread.before is None or thread.share >= _MOST_SHARE or sleeps(thread):
        return False
    if wait_of(thread) is Wait.SEMAPHORE:
        return False  # a lock between processes, which may go round
    often = thread.wakeups >= max(_LEAST_WAKES, _LEAST_RATE * thread.seconds)
    return often and not makes_progress(program, process)


CAUSE = Cause(NAME, find)
