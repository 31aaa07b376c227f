"""The loop itself has work to do, and the workers wait for it: the loader is well."""

from __future__ import annotations

from collections.abc import Iterator

from ...._transport import own_frames
from ...findings import Finding
from ..analyse.lock_waits import Wait, wait_of
from ..analyse.threads_and_processes import IDLE_SHARE, Actor, Scene, Strand
from ..analyse.torch_loader import CONNECTION, QUEUES, waits_as_before
from ..analyse.waits import at_line, sleeps
from .base import LIKELY, Cause
from .child_program import awaited
from .pipe_without_reader import writes_in_vain
from .rank_waits_for_rank import waiting_for
from .thread_gone import alone

NAME = "loop-busy"
_LOADER = "torch/utils/data/dataloader.py"


def find(scene: Scene) -> Iterator[Finding]:
    strand = scene.main.main
    if (
        strand is None
        or strand.before is None
        or not scene.seen
        or scene.main.stopped
        or scene.at_prompt
        or alone(scene, strand)
        or any(map(writes_in_vain, scene.main.strands))
    ):
        return
    waits = waits_for(scene, strand)
    if any(map(_in_loader, scene.main.strands)) or (not waits and not _goes_on(scene, strand)):
        return
    idle = [each for each in scene.living if scene.idle(each)]
    if len(idle) < len(scene.living):
        return
    count = len(idle)
    others = (
        f"its {count} workers have nothing to do and wait for it"
        if count > 1
        else "its worker has nothing to do and waits for it"
        if count
        else "no workers are there at the moment (between two epochs, or none are used)"
    )
    doing = waits or ("sleeps and looks again" if sleeps(strand) else "is at work itself")
    if late := waiting_for(scene):
        yield _late(scene, strand, doing, late)
        return
    well = "nothing is stuck in the loader" if waits else "nothing is stuck, the loader is fine"
    yield Finding(
        NAME,
        LIKELY,
        f"{well}: the loop {doing}, {at_line(strand)}, and {others}",
        evidence=(
            f"{scene.main.label}: {scene.main.share:.0%} of a core, {at_line(strand)}, not waiting"
            " for a batch in either look",
            *(f"{each.label}: waits for an order" for each in idle[:3]),
        ),
        get_out=(
            "nothing is to be done for the loader: whatever this line waits for decides when it"
            " goes on"
            if waits
            else "nothing is to be done; more workers would not make it faster",
        ),
        prevent=(
            "a time limit, if the wait should never be long (join, get, result and wait take one)"
            if waits
            else "to make it faster, make this line faster: the data is there before it is asked",
        ),
        pids=(scene.main.pid,),
        harmless=True,
    )


def _late(scene: Scene, strand: Strand, doing: str, late: list[tuple[Actor, str]]) -> Finding:
    """Say who waits for this rank: whether it comes to the same place, nobody can tell."""
    name = late[0][1]
    ranks = " and ".join(f"rank {each.number} (pid {each.pid})" for each, _ in late[:4])
    return Finding(
        NAME,
        LIKELY,
        f"{ranks} {'waits' if len(late) == 1 else 'wait'} for this rank, in {name}, and this one is"
        f" elsewhere: its loop {doing}, {at_line(strand)}",
        evidence=(
            f"{scene.main.label}: {scene.main.share:.0%} of a core, {at_line(strand)}, neither"
            " waiting for a batch nor in an operation of all ranks",
            *(f"rank {each.number} (pid {each.pid}) is in {name}" for each, name in late[:4]),
        ),
        get_out=(
            "let this line come to its end (bring what it waits for): the others then go on, and"
            " nothing is lost",
        ),
        prevent=(
            "let every rank do the same operations in the same order: no `continue` or `break` of"
            " one rank alone, the same number of batches for all",
        ),
        pids=(scene.main.pid,),
        harmless=True,
    )


def _in_loader(strand: Strand) -> bool:
    """Say whether a thread was in the loader at one of the looks."""
    before = strand.before.frames if strand.before is not None else ()
    return any(
        each.file.startswith((_LOADER, "torch/distributed/"))
        or (
            each.file.startswith(own_frames.PACKAGE)
            and not each.file.startswith(own_frames.COMMANDS)
        )
        for each in (*before, *strand.frames)
    )


def waits_for(scene: Scene, strand: Strand) -> str:
    """Say what the loop waits for that is not the loader's; nothing if it does not wait."""
    if sleeps(strand) and strand.stuck:
        return "sleeps on purpose"
    if not waits_as_before(strand):
        return ""
    if (child := awaited(scene, scene.main, strand)) is not None:
        return f"waits for a program that it has started, {child.process.name!r} (pid {child.pid})"
    wait = wait_of(strand)
    if strand.calls("get", "queue.py"):
        return "waits for something to be put into a queue"
    if strand.calls("get", QUEUES) or strand.calls("recv", CONNECTION):
        return "waits for a message of another process"
    if wait in (Wait.THREAD, Wait.RESULT):
        return f"waits for {wait.value}"
    if wait is Wait.NOTICE:
        return f"waits for {wait.value}"
    if strand.calls("select", "selectors.py") or "listening" in strand.descriptor():
        return "waits for something from outside (a request, an event)"
    return ""


def _goes_on(scene: Scene, strand: Strand) -> bool:
    """Say that it does something: one that has not moved may be stuck in its own code."""
    return strand.moved or scene.main.share > 5 * IDLE_SHARE or sleeps(strand)


CAUSE = Cause(NAME, find)
