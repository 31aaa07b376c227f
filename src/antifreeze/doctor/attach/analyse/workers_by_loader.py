"""Which worker belongs to which loader, where a program has several of torch's. Pure.

A loader makes a pipe for the batches of all its workers; then one for the orders of each worker,
and starts it. The main process has both ends of all of these. So the first worker of a loader has
two such pipes more than the workers before it, and each later one has one more; and the loop waits
for the pipe of batches of one of the loaders.
"""

from __future__ import annotations

from ..facts import Process
from . import torch_loader as torchs
from .threads_and_processes import Actor, Role, Scene
from .waits import loop_waits


def loaders(scene: Scene) -> list[list[Actor]]:
    """Give torch's workers, a list for each loader, as far as their pipes tell."""
    workers = [each for each in scene.workers if each.role is Role.WORKER]
    queues = _both_ends(scene.main.process)
    found: list[list[Actor]] = []
    known: set[str] = set()
    for worker in workers:
        new = (_ends(worker.process) & queues) - known
        known |= new
        if not found or len(new) > 1:
            found.append([])
        found[-1].append(worker)
    return found


def awaited(scene: Scene) -> list[Actor] | None:
    """Give the workers of the loader that the loop waits for; None if that is not known."""
    found = loaders(scene)
    if len(found) < 2:
        return list(scene.workers)
    reader = torchs.reader(scene)
    if reader is None or (torchs.waits_for_pinned(scene) and len(torchs.pin_threads(scene)) > 1):
        return None
    watched = {
        each.target
        for each in scene.main.process.descriptors
        if each.number in reader.thread.watches
    }
    # Those that were forked later have this pipe too: the first that has it began its loader.
    return next(
        (group for group in found if any(watched & _ends(each.process) for each in group)), None
    )


def and_the_loop_waits(scene: Scene, actors: list[Actor], whom: str = "it") -> str:
    """Give the end of a sentence about workers: that the loop waits for them, if it does."""
    if not loop_waits(scene) and scene.seen:
        return ""
    group = awaited(scene)
    if group is None:
        return ""
    if any(each in group for each in actors):
        return f", and the loop waits for {whom}"
    return ", for another loader than the one that the loop waits for now"


def _ends(process: Process) -> set[str]:
    return {each.target for each in process.descriptors if each.target.startswith("pipe:")}


def _both_ends(process: Process) -> set[str]:
    ends = [each.target for each in process.descriptors if each.target.startswith("pipe:")]
    return {each for each in ends if ends.count(each) > 1}
