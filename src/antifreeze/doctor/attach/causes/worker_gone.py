"""A worker has died, and the loop still waits for it."""

from __future__ import annotations

import signal
from collections.abc import Iterator

from ...findings import Confidence, Finding
from ..analyse import torch_loader as torchs
from ..analyse.library_files import CONNECTION
from ..analyse.threads_and_processes import Program, WatchedProcess, WatchedThread
from .base import CERTAIN, LIKELY, POSSIBLE, Cause, names_of, plural, where

NAME = "worker-gone"
_SIGCHLD = 1 << (signal.SIGCHLD - 1)


def find(program: Program) -> Iterator[Finding]:
    loop = torchs.loop(program)
    if loop is None or program.ours:
        return
    reader = torchs.reader(program)
    dead = torchs.killed_workers(program)
    halfway = reader is not None and torchs.in_message(reader) and not _may_go_on(program)
    if dead:
        yield _finding(program, loop, names_of(dead), dead, halfway)
        return
    waits = reader is not None and (halfway or torchs.awaits_message(reader))
    if not waits or not (count := torchs.reaped_workers(program)):
        return
    if halfway or torchs.nothing_under_way(program) or _all_wait_for_turn(program):
        who = "a worker" if count == 1 else f"{count} workers"
        yield _finding(program, loop, who, [], halfway)


def _finding(
    program: Program, loop: WatchedThread, who: str, dead: list[WatchedProcess], halfway: bool
) -> Finding:
    main = program.main
    middle = ", in the middle of a batch that it was sending" if halfway else ""
    has = plural(dead, "has", "have") if dead else "has" if who == "a worker" else "have"
    sure: Confidence = CERTAIN if dead and halfway else LIKELY
    if dead and not halfway and all(torchs.died_of(each.now, signal.SIGTERM) for each in dead):
        sure = POSSIBLE  # torch ends workers of an earlier loop so
    in_first = loop.now.tid == main.pid
    return Finding(
        NAME,
        sure,
        f"{who} {has} died{middle}, and the loop still waits for it, {where(loop)}",
        evidence=(
            *(f"{each.label}: {torchs.how_it_died(each.now)}" for each in dead),
            *([] if dead else [_traces(program)]),
            *(
                ["the loop has read the beginning of a message, and nobody writes the rest"]
                * halfway
            ),
            *(
                ["the others wait for their turn to write: it died while it had it"]
                * _all_wait_for_turn(program)
            ),
            *(
                ["torch asks every five seconds and tells then; with `timeout=`, after that"]
                * bool(dead and not halfway)
            ),
            *_why_unseen(main, in_first),
            *torchs.out_of_memory(program),
        ),
        get_out=(
            f"kill -INT {main.pid}    (KeyboardInterrupt in the main thread, as by Ctrl-C: the"
            " script can save; what it does not save is lost)",
            f"kill -9 {main.pid}    (if that does nothing; all since the last checkpoint is lost)",
        ),
        prevent=(
            "find out what killed it: `dmesg | grep -i kill` tells if it was for want of memory;"
            " a crash of C code prints to the log",
            "iterate over the loader in the main thread, and leave SIGCHLD to torch: else nobody"
            " is told of the death",
            "antifreeze's loader waits on the process itself, starts another worker, and says what"
            " happened",
        ),
        pids=(main.pid, *(each.pid for each in dead)),
    )


def _may_go_on(program: Program) -> bool:
    """Whether a worker that lives may have the rest of the message: it sends, or is not seen."""
    return any(
        not any(thread.frames for thread in each.threads)
        or any(feeder.calls("_send", CONNECTION) for feeder in torchs.feeders(each))
        for each in torchs.workers(program)
    )


def _traces(program: Program) -> str:
    there, fed = len(torchs.workers(program)), len(torchs.feeders(program.main))
    return (
        f"the main process feeds {fed} workers and {there} are there; the pipe that a worker holds"
        " as long as it lives has no other end"
    )


def _all_wait_for_turn(program: Program) -> bool:
    """Whether whoever of the workers has something to send cannot get the lock for it."""
    sending = [
        feeder
        for worker in torchs.workers(program)
        for feeder in torchs.feeders(worker)
        if not torchs.has_nothing_to_send(feeder)
    ]
    return bool(sending) and all(torchs.waits_for_turn(each) for each in sending)


def _why_unseen(main: WatchedProcess, in_first: bool) -> list[str]:
    """Return why torch has not told of it."""
    found = []
    if main.now.ignores_signals & _SIGCHLD:
        found.append("the main process ignores SIGCHLD: torch cannot ask what became of a worker")
    if main.now.blocks_signals & _SIGCHLD:
        found.append("the main thread blocks SIGCHLD, by which torch learns of a death")
    if not in_first:
        found.append("the loop is not in the main thread, and only that is told of a death")
    return found


CAUSE = Cause(NAME, find)
