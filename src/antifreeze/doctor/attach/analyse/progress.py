"""Whether a process gets on: bytes it has read or written, or another part of its code. Pure.

To wake up and sleep again at the same line is not progress, and neither is CPU time alone: a timer,
a poller and a loop without an end have both. All looks of a case count, the one before the last two
as well.
"""

from __future__ import annotations

from itertools import pairwise

from ..facts import Process, Thread
from .threads_and_processes import Program, Role, WatchedProcess, WatchedThread

_PYTHONS_OWN = ("libpython", "python3", "libc.so", "libc-", "ld-linux", "[vdso]", "libm.so")


def watched_s(program: Program) -> float:
    """Return how long the program was watched, in all."""
    return program.case.looks[-1].at - program.case.looks[0].at


def exchanged(program: Program, process: WatchedProcess) -> bool | None:
    """Whether a process has read or written anything since the first look; None: not known."""
    then = _at_first(program, process)
    now = process.now
    if then is None:
        return None
    # Our own workers write down their stacks, which is no progress.
    written = process.role is not Role.OUR_WORKER and then.written_bytes != now.written_bytes
    if written or then.read_bytes != now.read_bytes:
        return True
    if -1 not in (then.network_bytes, now.network_bytes):
        return then.network_bytes != now.network_bytes
    connected = any(" -> " in each.target for each in now.descriptors)
    return None if connected else False


def changed_function(program: Program, thread: WatchedThread) -> bool:
    """Whether a thread went on to another function between two looks: not into one that the first
    calls, nor out of it again, as a loop does all the time."""
    stacks = [_functions(each) for each in _at_each_look(program, thread)]
    return any(_differ(one, other) for one, other in pairwise(stacks))


def makes_progress(program: Program, process: WatchedProcess) -> bool:
    """Whether a process was seen to get on, by bytes or by its stack. What is not known counts."""
    thread = process.main
    return exchanged(program, process) is not False or (
        thread is not None and changed_function(program, thread)
    )


def in_native_code(thread: WatchedThread) -> str:
    """Return which code of a native library, not Python's own, a thread that runs is in; nothing if
    it runs Python, as far as can be seen."""
    for each in thread.native:
        if ".so" in each.file and not each.file.startswith(_PYTHONS_OWN):
            return str(each)
    before = thread.before
    both = (thread.now, thread.now if before is None else before)
    if thread.frames and all(each.state == "R" and not each.holds_gil for each in both):
        return "it runs without the interpreter's lock, as no Python code does"
    return ""


def _at_first(program: Program, process: WatchedProcess) -> Process | None:
    return next(
        (
            each
            for each in program.case.looks[0].processes
            if (each.pid, each.started_at) == (process.pid, process.now.started_at)
        ),
        None,
    )


def _at_each_look(program: Program, thread: WatchedThread) -> list[Thread]:
    return [
        each
        for look in program.case.looks
        for process in look.processes
        if process.pid == thread.process.pid
        for each in process.threads
        if each.tid == thread.now.tid and each.frames
    ]


def _functions(thread: Thread) -> list[tuple[str, str]]:
    """Return the Python functions that a thread is in, the outermost first."""
    return [(each.name, each.file) for each in reversed(thread.frames) if not each.native]


def _differ(one: list[tuple[str, str]], other: list[tuple[str, str]]) -> bool:
    return any(was != now for was, now in zip(one, other, strict=False))
