"""Somebody waits for another thread of the process to say something, and none is there."""

from __future__ import annotations

from collections.abc import Iterator

from ...._transport import own_frames
from ...findings import Confidence, Finding
from ..analyse.library_files import LOADER
from ..analyse.lock_waits import Wait, forked, nobody_answers, queue_awaited, wait_of
from ..analyse.threads_and_processes import Program, WatchedProcess, WatchedThread
from ..analyse.torch_loader import ends_program
from ..analyse.waits import at_line, in_sample, loads_itself, loop_waits
from ..analyse.workers_by_loader import and_the_loop_waits
from .base import LIKELY, POSSIBLE, Cause, interrupt_wait, kill_worker, names_of, plural

NAME = "thread-gone"
_LOADERS = (LOADER, own_frames.PACKAGE)


def find(program: Program) -> Iterator[Finding]:
    groups: dict[str, list[tuple[WatchedProcess, WatchedThread]]] = {}
    for process in _asked(program):
        thread = process.main
        if thread is not None and nobody_answers(process, thread):
            groups.setdefault(_what(thread), []).append((process, thread))
    for what, stuck in groups.items():
        sure = LIKELY if queue_awaited(stuck[0][1]) else POSSIBLE
        if sure is POSSIBLE and not program.workers:
            continue  # a program that waits until it is told to end, as servers do
        yield _finding(program, what, sure, stuck)


def _asked(program: Program) -> list[WatchedProcess]:
    """Return those whose waiting matters; of forked workers `threads-after-fork` tells."""
    if loop_waits(program):
        return [
            each
            for each in program.living
            if in_sample(program, each) and not forked(program, each)
        ]
    main = program.main.main
    return [program.main] if main is not None and alone(program, main) else []


def alone(program: Program, thread: WatchedThread) -> bool:
    """Whether the main thread waits, without a limit, for a thread that is not there."""
    if program.at_prompt or program.main.stopped or ends_program(thread):
        return False
    if any(each.file.startswith(_LOADERS) for each in thread.frames) and not loads_itself(program):
        return False
    return nobody_answers(program.main, thread)


def _what(thread: WatchedThread) -> str:
    """Return what a thread waits for. A thread of C may give a result, and a signal set an
    event."""
    if wait_of(thread) is Wait.RESULT:
        return Wait.RESULT.value
    return queue_awaited(thread) or "a notice (an event or a condition)"


def _finding(
    program: Program, what: str, sure: Confidence, stuck: list[tuple[WatchedProcess, WatchedThread]]
) -> Finding:
    processes = [process for process, _ in stuck]
    _, first = stuck[0]
    main = program.main in processes
    puts = first.calls("put", "queue.py") is not None
    does = "take anything out" if puts else "put anything in" if queue_awaited(first) else "answer"
    return Finding(
        NAME,
        sure,
        f"{names_of(processes)} {plural(processes, 'waits', 'wait')} for {what},"
        f" {at_line(first)}, and no other thread is there that could {does}: the one that should"
        " has ended (an error ends a thread, and nothing else), or was never started"
        + ("" if main else and_the_loop_waits(program, processes, plural(processes, "it", "them"))),
        evidence=(
            f"{names_of(processes)}: no CPU, at the same line in both looks, without a limit:"
            f" {first.at}",
            "every other thread of its process that runs Python is idle, waits without a limit too,"
            " or watches a progress bar",
        ),
        get_out=(
            "see what the program has printed: 'Exception in thread ...' says which one has ended,"
            " and why",
            interrupt_wait(program.main) if main else kill_worker(processes),
        ),
        prevent=(
            "have the thread put its error into the queue, and raise it where it is taken out",
            "get(timeout=...), result(timeout=...) in a loop that looks whether the thread lives"
            " (thread.is_alive())",
        ),
        pids=tuple(each.pid for each in processes),
    )


CAUSE = Cause(NAME, find)
