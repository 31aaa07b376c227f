"""A new process is unpickling what it was sent, and the main process waits to send the rest."""

from __future__ import annotations

from collections.abc import Iterator

from ...._linux.syscalls import WRITES
from ...findings import Finding
from ..analyse.stuck_duration import long_time_not_run
from ..analyse.threads_and_processes import IDLE_SHARE, Program, Role, WatchedProcess, WatchedThread
from ..analyse.waits import at_line, sent_nothing
from .base import LIKELY, POSSIBLE, Cause

NAME = "slow-unpickling"
# Where multiprocessing writes what a new process is to run, for `spawn` and for `forkserver`.
_LAUNCHERS = ("multiprocessing/popen_spawn_posix.py", "multiprocessing/popen_forkserver.py")
_ACCESS, _READ_ONLY = 3, 0  # the bits of a descriptor's flags that say how it was opened


def find(program: Program) -> Iterator[Finding]:
    for thread in program.main.threads:
        if not sends(thread):
            continue
        child = _reader(program, thread.descriptor())
        if child is not None and child.main is not None:
            yield _finding(program, thread, child, child.main)


def sends(thread: WatchedThread) -> bool:
    """Whether a thread is in a write of what a process that it starts is to run."""
    call = thread.now.call
    if not call or call[0] not in WRITES or not thread.descriptor().startswith("pipe:"):
        return False
    return any(thread.calls("_launch", each) is not None for each in _LAUNCHERS)


def _reader(program: Program, pipe: str) -> WatchedProcess | None:
    """Return the process below the main one that has the pipe open to be read."""
    return next(
        (
            each
            for each in (*program.living, *program.others)
            if not each.dead
            and each.role is not Role.HELPER
            and any(
                d.target == pipe and d.flags & _ACCESS == _READ_ONLY for d in each.now.descriptors
            )
        ),
        None,
    )


def _finding(
    program: Program, thread: WatchedThread, child: WatchedProcess, reads: WatchedThread
) -> Finding:
    gets_on = child.before is None or child.share >= IDLE_SHARE or not sent_nothing(child)
    slept = long_time_not_run(child)
    seen = f"{child.label}: {child.share:.0%} of a core, {at_line(reads)}, in the second look" + (
        f"; it has not run for {slept}" if slept else ""
    )
    waits = f"{program.main.label} waits in the middle of sending it, {at_line(thread)}"
    if gets_on:
        sentence = (
            f"nothing is stuck: {child.label} is being started and unpickles what it was sent (the"
            f" dataset, most often), {at_line(reads)}; {waits}"
        )
    else:
        sentence = (
            f"{child.label} is being started and does not get on with unpickling what it was sent"
            f" (the dataset, most often), {at_line(reads)}: it may wait for something, or only be"
            f" slow; {waits}"
        )
    return Finding(
        NAME,
        LIKELY if gets_on else POSSIBLE,
        sentence,
        evidence=(
            seen,
            f"{program.main.label}: in a write to {thread.descriptor()}, which {child.label} reads",
        ),
        get_out=_get_out(program, gets_on=gets_on),
        prevent=(
            "keep large data out of the dataset object: store a path, and open or map the file in"
            " the worker, on first use; multiprocessing sends the whole dataset to each worker in"
            " turn",
            "do slow or blocking work (downloads, servers, locks) in neither __setstate__ nor"
            " __reduce__",
        ),
        pids=(child.pid, program.main.pid),
        harmless=gets_on,
        general=True,
    )


def _get_out(program: Program, *, gets_on: bool) -> tuple[str, ...]:
    alone = (
        "leave the pipe between the two alone: what anybody else takes out of it is lost to the"
        " new process"
    )
    if gets_on:
        return (f"nothing is to be done: it goes on; {alone}",)
    return (
        f"look again in a minute: antifreeze attach {program.main.pid}; {alone}",
        interrupt(program.main.pid),
    )


def interrupt(pid: int) -> str:
    """Return the command that ends a start: to kill the new process alone does not, since the main
    process has its end of the pipe open too and would wait on."""
    return (
        f"kill -INT {pid}    (a KeyboardInterrupt at this line, which ends the new process too:"
        " what the script does not save then is lost)"
    )


CAUSE = Cause(NAME, find)
