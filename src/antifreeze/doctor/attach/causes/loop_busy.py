"""The loop itself has work to do, and the workers wait for it: the loader is well."""

from __future__ import annotations

from collections.abc import Iterator

from ...._transport import own_frames
from ...findings import Finding
from ..analyse.library_files import CONNECTION, LOADER, QUEUES
from ..analyse.lock_waits import Wait, wait_of
from ..analyse.threads_and_processes import IDLE_SHARE, Program, WatchedProcess, WatchedThread
from ..analyse.torch_loader import waits_as_before
from ..analyse.waits import at_line, sleeps
from .base import LIKELY, Cause
from .child_program import awaited
from .pipe_without_reader import writes_in_vain
from .rank_waits_for_rank import waiting_for
from .thread_gone import alone

NAME = "loop-busy"


def find(program: Program) -> Iterator[Finding]:
    thread = program.main.main
    if (
        thread is None
        or thread.before is None
        or not program.seen
        or program.main.stopped
        or program.at_prompt
        or alone(program, thread)
        or any(map(writes_in_vain, program.main.threads))
    ):
        return
    waits = waits_for(program, thread)
    if any(map(_in_loader, program.main.threads)) or (not waits and not _goes_on(program, thread)):
        return
    idle = [each for each in program.living if program.idle(each)]
    if len(idle) < len(program.living):
        return
    count = len(idle)
    others = (
        f"its {count} workers have nothing to do and wait for it"
        if count > 1
        else "its worker has nothing to do and waits for it"
        if count
        else "no workers are there at the moment (between two epochs, or none are used)"
    )
    doing = waits or ("sleeps and looks again" if sleeps(thread) else "is at work itself")
    if late := waiting_for(program):
        yield _late(program, thread, doing, late)
        return
    well = "nothing is stuck in the loader" if waits else "nothing is stuck, the loader is fine"
    yield Finding(
        NAME,
        LIKELY,
        f"{well}: the loop {doing}, {at_line(thread)}, and {others}",
        evidence=(
            f"{program.main.label}: {program.main.share:.0%} of a core, {at_line(thread)}, not"
            " waiting for a batch in either look",
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
        pids=(program.main.pid,),
        harmless=True,
    )


def _late(
    program: Program, thread: WatchedThread, doing: str, late: list[tuple[WatchedProcess, str]]
) -> Finding:
    """Return who waits for this rank: whether it comes to the same place, nobody can tell."""
    name = late[0][1]
    ranks = " and ".join(f"rank {each.number} (pid {each.pid})" for each, _ in late[:4])
    return Finding(
        NAME,
        LIKELY,
        f"{ranks} {'waits' if len(late) == 1 else 'wait'} for this rank, in {name}, and this one is"
        f" elsewhere: its loop {doing}, {at_line(thread)}",
        evidence=(
            f"{program.main.label}: {program.main.share:.0%} of a core, {at_line(thread)}, neither"
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
        pids=(program.main.pid,),
        harmless=True,
    )


def _in_loader(thread: WatchedThread) -> bool:
    """Whether a thread was in the loader at one of the looks."""
    before = thread.before.frames if thread.before is not None else ()
    return any(
        each.file.startswith((LOADER, "torch/distributed/"))
        or (
            each.file.startswith(own_frames.PACKAGE)
            and not each.file.startswith(own_frames.COMMANDS)
        )
        for each in (*before, *thread.frames)
    )


def waits_for(program: Program, thread: WatchedThread) -> str:
    """Return what the loop waits for that is not the loader's; nothing if it does not wait."""
    if sleeps(thread) and thread.stuck:
        return "sleeps on purpose"
    if not waits_as_before(thread):
        return ""
    if (child := awaited(program, program.main, thread)) is not None:
        return f"waits for a program that it has started, {child.now.name!r} (pid {child.pid})"
    wait = wait_of(thread)
    if thread.calls("get", "queue.py"):
        return "waits for something to be put into a queue"
    if thread.calls("get", QUEUES) or thread.calls("recv", CONNECTION):
        return "waits for a message of another process"
    if wait in (Wait.THREAD, Wait.RESULT):
        return f"waits for {wait.value}"
    if wait is Wait.NOTICE:
        return f"waits for {wait.value}"
    if thread.calls("select", "selectors.py") or "listening" in thread.descriptor():
        return "waits for something from outside (a request, an event)"
    return ""


def _goes_on(program: Program, thread: WatchedThread) -> bool:
    """Whether it does something: one that has not moved may be stuck in its own code."""
    return thread.moved or program.main.share > 5 * IDLE_SHARE or sleeps(thread)


CAUSE = Cause(NAME, find)
