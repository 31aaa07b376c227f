"""Workers whose main process is gone."""

from __future__ import annotations

from collections.abc import Iterator

from ...findings import Finding
from ..analyse import torch_loader as torchs
from ..analyse.library_files import FETCH
from ..analyse.threads_and_processes import Program, Role, WatchedProcess
from .base import CERTAIN, LIKELY, Cause, plural, where

NAME = "orphaned-workers"


def find(program: Program) -> Iterator[Finding]:
    parent = program.main.now.parent
    if program.main.role is not Role.WORKER or not parent:
        return  # a parent that cannot be seen from this container may well be there
    orphans = [
        each
        for each in (program.main, *program.others)
        if each.role is Role.WORKER and not each.dead
    ]
    pids = " ".join(str(each.pid) for each in orphans)
    more = "" if len(orphans) == 1 else f" (there are {len(orphans)} of them)"
    held = sum(each.now.memory.own for each in orphans)
    yield Finding(
        NAME,
        CERTAIN if parent == 1 else LIKELY,
        f"{program.main.pid} is a worker of torch's loader whose main process is gone{more}:"
        f" {_doing(program.main)}",
        evidence=(
            f"its parent is process {parent}, which is no Python program",
            *(f"pid {each.pid}: {_doing(each)}" for each in orphans[:8]),
            f"{plural(orphans, 'it holds', 'together they hold')} {held >> 20} MB of memory, and"
            " what they have open (a GPU's memory too, if they have used it)",
        ),
        get_out=(f"kill -9 {pids}    (nothing is lost: nobody is left to take what they make)",),
        prevent=(
            "end the main process with SIGINT or SIGTERM and not with SIGKILL; with a container or"
            " a job scheduler, end the whole group",
            "antifreeze's workers end with their main process, whatever it dies of",
        ),
        pids=tuple(each.pid for each in orphans),
    )


def _doing(orphan: WatchedProcess) -> str:
    thread = orphan.main
    if any(map(torchs.writes_in_vain, torchs.feeders(orphan))):
        return "it wants to end, and its queue's thread still writes into a pipe that nobody reads"
    if orphan.stopped:
        return "it is stopped"
    if thread is None or not thread.frames:
        return "it has not noticed"
    if thread.calls("fetch", FETCH):
        return f"it is in a sample, {where(thread)}, and looks for its parent only between batches"
    return f"it is {where(thread)}"


CAUSE = Cause(NAME, find)
