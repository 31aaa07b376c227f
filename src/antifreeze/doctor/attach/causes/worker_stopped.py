"""A worker was stopped by a signal, or by a debugger."""

from __future__ import annotations

from collections.abc import Iterator

from ...findings import Finding
from ..analyse.threads_and_processes import Actor, Role, Scene
from ..analyse.torch_loader import waits_as_before
from .base import CERTAIN, LIKELY, Cause, are, people

NAME = "worker-stopped"


def find(scene: Scene) -> Iterator[Finding]:
    everyone = (*scene.workers, scene.main)
    stopped = [each for each in everyone if each.stopped and _was(each)]
    if not stopped and _nobody_moves(scene):  # a manager or a producer, then
        stopped = [each for each in scene.others if each.stopped and _was(each)]
    if not stopped:
        return
    traced = [each for each in stopped if each.process.traced_by]
    pids = " ".join(str(each.pid) for each in stopped)
    by = "by a debugger" if traced else "by a signal (SIGSTOP, SIGTSTP, Ctrl-Z)"
    get_out = (
        f"leave the debugger (pid {traced[0].process.traced_by}): nothing is lost"
        if traced
        else f"kill -CONT {pids}    (it goes on where it was: nothing is lost)"
    )
    yield Finding(
        NAME,
        LIKELY if stopped[0] in scene.others else CERTAIN,
        f"{_who(stopped)} {are(stopped, 'is', 'are')} stopped {by}{_and_loop(scene)}",
        evidence=tuple(
            f"state {each.process.state} of {each.label}, in both looks" for each in stopped
        ),
        get_out=(get_out,),
        prevent=("find who sent it: a job scheduler that suspends jobs, a shell, a debugger",),
        pids=tuple(each.pid for each in stopped),
    )


def _was(actor: Actor) -> bool:
    """Say that it was stopped in the first look too: whoever takes stacks stops it for a moment."""
    return actor.before is not None and actor.before.state in "Tt"


def _nobody_moves(scene: Scene) -> bool:
    strands = [scene.loop, *(each.main for each in scene.living)]
    return all(each is not None and waits_as_before(each) for each in strands)


def _who(stopped: list[Actor]) -> str:
    workers = [each for each in stopped if each.role in (Role.WORKER, Role.OUR_WORKER)]
    rest = [_label(each) for each in stopped if each not in workers]
    return " and ".join([*([people(workers)] if workers else []), *rest])


def _label(actor: Actor) -> str:
    if actor.role is Role.MAIN:
        return actor.label
    manager = any(
        each.calls("serve_forever", "multiprocessing/managers.py") for each in actor.strands
    )
    what = "a manager" if manager else f"a process ({actor.process.name})"
    return f"{what} that the program has started (pid {actor.pid})"


def _and_loop(scene: Scene) -> str:
    if scene.main.stopped:
        return ""
    place = scene.waits_for_batch
    return f", and the loop waits, in {place}" if place else ""


CAUSE = Cause(NAME, find)
