"""A worker was stopped by a signal, or by a debugger."""

from __future__ import annotations

from collections.abc import Iterator

from ...findings import Finding
from ..analyse.library_files import MANAGERS
from ..analyse.threads_and_processes import Program, Role, WatchedProcess
from ..analyse.torch_loader import waits_as_before
from .base import CERTAIN, LIKELY, Cause, names_of, plural

NAME = "worker-stopped"


def find(program: Program) -> Iterator[Finding]:
    everyone = (*program.workers, program.main)
    stopped = [each for each in everyone if each.stopped and _was(each)]
    if not stopped and _nobody_moves(program):  # a manager or a producer, then
        stopped = [each for each in program.others if each.stopped and _was(each)]
    if not stopped:
        return
    traced = [each for each in stopped if each.now.traced_by]
    pids = " ".join(str(each.pid) for each in stopped)
    by = "by a debugger" if traced else "by a signal (SIGSTOP, SIGTSTP, Ctrl-Z)"
    get_out = (
        f"leave the debugger (pid {traced[0].now.traced_by}): nothing is lost"
        if traced
        else f"kill -CONT {pids}    (it goes on where it was: nothing is lost)"
    )
    yield Finding(
        NAME,
        LIKELY if stopped[0] in program.others else CERTAIN,
        f"{_who(stopped)} {plural(stopped, 'is', 'are')} stopped {by}{_and_loop(program)}",
        evidence=tuple(
            f"state {each.now.state} of {each.label}, in both looks" for each in stopped
        ),
        get_out=(get_out,),
        prevent=("find who sent it: a job scheduler that suspends jobs, a shell, a debugger",),
        pids=tuple(each.pid for each in stopped),
    )


def _was(process: WatchedProcess) -> bool:
    """Whether it was stopped in the first look too: whoever takes stacks stops it for a moment."""
    return process.before is not None and process.before.state in "Tt"


def _nobody_moves(program: Program) -> bool:
    threads = [program.loop, *(each.main for each in program.living)]
    return all(each is not None and waits_as_before(each) for each in threads)


def _who(stopped: list[WatchedProcess]) -> str:
    workers = [each for each in stopped if each.role in (Role.WORKER, Role.OUR_WORKER)]
    rest = [_label(each) for each in stopped if each not in workers]
    return " and ".join([*([names_of(workers)] if workers else []), *rest])


def _label(process: WatchedProcess) -> str:
    if process.role is Role.MAIN:
        return process.label
    manager = any(each.calls("serve_forever", MANAGERS) for each in process.threads)
    what = "a manager" if manager else f"a process ({process.now.name})"
    return f"{what} that the program has started (pid {process.pid})"


def _and_loop(program: Program) -> str:
    if program.main.stopped:
        return ""
    place = program.waits_for_batch
    return f", and the loop waits, in {place}" if place else ""


CAUSE = Cause(NAME, find)
