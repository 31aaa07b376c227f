"""Say where workers come from, and why: of one loader, and of a program that asks for nothing."""

from __future__ import annotations

import multiprocessing
from pathlib import PurePath
from typing import Any

from ..._core.fork_or_clean import Choice, Program, Wish, WorkerOrigin, choose
from ..._core.frozen_values import frozen
from ..._core.health.stall_detection import StackLine
from ..._core.limits import LIMITS


@frozen
class Wait:
    """What is known of a forked worker that waits."""

    deadlock: str  # the locks, as `Activity` has them; empty: it may yet go on
    lacks: str  # a native library whose threads it does not have
    at: str  # the line of code, in words
    for_semaphore: bool = False


def is_for_semaphore(stack: tuple[StackLine, ...]) -> bool:
    """Whether a thread waits for a semaphore of the standard library, by its stack."""
    calls = [(PurePath(each.file).name, each.function) for each in stack[:2]]
    return calls == [("threading.py", "wait"), ("threading.py", "acquire")]


def in_words(choice: Choice, pid: int | None = None) -> str:
    """Return where the workers of a loader come from. `pid`: of the process that has chosen."""
    if choice.descent is WorkerOrigin.CLEAN_PROCESS:
        return f"from a clean process, because {choice.why}"
    words = "forked from this process" + ("" if pid is None else f" (pid {pid})")
    if choice.asked_for:
        words += f", because {choice.why}"
    elif choice.why:
        words += f", although {choice.why}"
        words += f": {choice.forked_though}" if choice.forked_though else ""
    return words + (f", beside {choice.beside}" if choice.beside else "")


def of_context(context: Any) -> str:
    """Return where workers come from that the program's own multiprocessing context starts."""
    return f"started one by one by multiprocessing ({context.get_start_method()})"


def default_start_method() -> str:
    """Return how multiprocessing starts processes where the program does not say."""
    return multiprocessing.get_all_start_methods()[0]


def of_programs(wish: Wish) -> str:
    """Return where workers come from in a program with this wish, on this machine."""
    if wish is Wish.CLEAN:
        return "a clean process"
    if choose(Program(threads=("another",)), wish).descent is WorkerOrigin.MAIN:
        return "a fork of the program, always"
    size = f"{LIMITS.forking.huge_bytes / 1024**3:.0f} GiB"
    return (
        "a fork of the program, or of a clean process where another thread runs, a lock is held or"
        f" the program holds {size}"
    )
