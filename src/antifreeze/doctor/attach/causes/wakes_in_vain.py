"""A worker wakes up again and again, reads nothing, and sleeps again at the same line."""

from __future__ import annotations

from collections.abc import Iterator

from ...findings import Finding
from ..analyse.lock_waits import Wait, wait_of
from ..analyse.progress import exchanged, gets_on, watched_s
from ..analyse.threads_and_processes import Actor, Role, Scene, Strand
from ..analyse.waits import at_line, in_sample, loop_waits, sleeps
from ..analyse.workers_by_loader import and_the_loop_waits
from .base import POSSIBLE, Cause, are, kill_worker, people
from .idle_event_loop import idle_loop

NAME = "wakes-in-vain"
_LATE_S = 3.0  # watched without a byte: who waits for a server that is only slow got one by then
_LEAST_WAKES, _LEAST_RATE = 2, 1.0  # between the last looks, and in a second: that is often
_MOST_SHARE = 0.1  # of a core: who uses more computes


def find(scene: Scene) -> Iterator[Finding]:
    if not loop_waits(scene) or watched_s(scene) < _LATE_S:
        return
    if any(exchanged(scene, each) for each in scene.living):
        return  # others have sent batches: it may wait for its turn, or for what they bring
    found = [
        (worker, strand)
        for worker in scene.living
        if in_sample(scene, worker)
        and (strand := worker.main) is not None
        and wakes_in_vain(scene, worker, strand)
        and not _has_children(scene, worker)
        and idle_loop(scene, worker) is None  # which knows more of it
    ]
    if not found:
        return
    workers = [worker for worker, _ in found]
    _, first = found[0]
    seconds = watched_s(scene)
    yield Finding(
        NAME,
        POSSIBLE,
        f"{people(workers)} {are(workers, 'wakes', 'wake')} up again and again and"
        f" {are(workers, 'sleeps', 'sleep')} again at the same line, {at_line(first)}: nothing was"
        f" read or written and no batch came in {seconds:.0f} s, so what"
        f" {are(workers, 'it waits', 'they wait')} for may never come"
        f"{and_the_loop_waits(scene, workers, are(workers, 'it', 'them'))}",
        evidence=(
            *(
                f"{worker.label}: woke up {woken(strand)} times in the last {scene.seconds:.1f} s,"
                f" used {strand.share:.0%} of a core, in {strand.at}"
                for worker, strand in found[:4]
            ),
            f"no byte was read or written, in files, pipes or connections, in {seconds:.0f} s",
        ),
        get_out=(
            f"look again, in a minute: antifreeze attach {scene.main.pid}    (if the same line is"
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


def wakes_in_vain(scene: Scene, actor: Actor, strand: Strand) -> bool:
    """Whether a thread wakes up, and nothing comes of it."""
    if strand.before is None or strand.share >= _MOST_SHARE or sleeps(strand):
        return False
    if wait_of(strand) is Wait.SEMAPHORE:
        return False  # a lock between processes, which may go round
    often = woken(strand) >= max(_LEAST_WAKES, _LEAST_RATE * strand.seconds)
    return often and not gets_on(scene, actor)


def woken(strand: Strand) -> int:
    return strand.thread.gave_way - strand.before.gave_way if strand.before is not None else 0


def _has_children(scene: Scene, actor: Actor) -> bool:
    """Whether it may wait for a program that it has started, which has a cause of its own."""
    return any(
        each.process.parent == actor.pid and not each.dead and each.role is Role.CHILD
        for each in scene.others
    )


CAUSE = Cause(NAME, find)
