"""Which worker belongs to which loader, where a program has several of torch's. Pure.

A loader makes a pipe for the batches of all its workers; then one for the orders of each worker,
and starts it. The main process has both ends of all of these. So the first worker of a loader has
two such pipes more than the workers before it, and each later one has one more; and the loop waits
for the pipe of batches of one of the loaders.
"""

from __future__ import annotations

from ..facts import Process
from . import torch_loader as torchs
from .threads_and_processes import Program, Role, WatchedProcess
from .waits import loop_waits


def loaders(program: Program) -> list[list[WatchedProcess]]:
    """Return torch's workers, a list for each loader, as far as their pipes tell."""
    workers = [each for each in program.workers if each.role is Role.WORKER]
    queues = _both_ends(program.main.now)
    found: list[list[WatchedProcess]] = []
    known: set[str] = set()
    for worker in workers:
        new = (_ends(worker.now) & queues) - known
        known |= new
        if not found or len(new) > 1:
            found.append([])
        found[-1].append(worker)
    return found


def awaited(program: Program) -> list[WatchedProcess] | None:
    """Return the workers of the loader that the loop waits for; None if that is not known."""
    found = loaders(program)
    if len(found) < 2:
        return list(program.workers)
    reader = torchs.reader(program)
    if reader is None or (
        torchs.waits_for_pinned(program) and len(torchs.pin_threads(program)) > 1
    ):
        return None
    watched = {
        each.target for each in program.main.now.descriptors if each.number in reader.now.watches
    }
    # Those that were forked later have this pipe too: the first that has it began its loader.
    return next(
        (group for group in found if any(watched & _ends(each.now) for each in group)), None
    )


def and_the_loop_waits(program: Program, processes: list[WatchedProcess], whom: str = "it") -> str:
    """Return the end of a sentence about workers: that the loop waits for them, if it does."""
    if not loop_waits(program) and program.seen:
        return ""
    group = awaited(program)
    if group is None:
        return ""
    if any(each in group for each in processes):
        return f", and the loop waits for {whom}"
    return ", for another loader than the one that the loop waits for now"


def _ends(process: Process) -> set[str]:
    return {each.target for each in process.descriptors if each.target.startswith("pipe:")}


def _both_ends(process: Process) -> set[str]:
    ends = [each.target for each in process.descriptors if each.target.startswith("pipe:")]
    return {each for each in ends if ends.count(each) > 1}
