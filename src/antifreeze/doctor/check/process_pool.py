"""Map a function over many items in several processes, any of which may die.

1. A death loses nothing that was done. What was not done is tried again, from the end, since the
   item that kills is near the start. If there is another death, one process takes what is left, one
   item at a time, so that it is known which item kills: that one is lost, the rest is done.
2. An interrupt ends it at once: what is queued is dropped, processes are killed.
"""

from __future__ import annotations

import multiprocessing
import signal
import sys
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import Future, ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

ITEMS_PER_MESSAGE = 16  # items a message between processes
MOST_PROCESSES = 32  # processes; each has the summaries of all files, and has to be started
MOST_DEATHS = 8  # items that kill a process, and are left out; after that the machine is to blame

Item = TypeVar("Item")
Made = TypeVar("Made")


@dataclass(frozen=True, slots=True)
class Task(Generic[Item, Made]):
    """What each process does: `begin` once, then `do` for every item. Both are found by name."""

    do: Callable[[Item], Made]
    begin: Callable[..., None]
    given: tuple[Any, ...]  # to `begin`


def can_fork() -> bool:
    """Whether processes can be started by forking this one. (On a Mac, system libraries forbid
    it.)"""
    return sys.platform == "linux"


def processes_for(items: int, jobs: int) -> int:
    """Return how many processes are worth starting: not more than there are messages."""
    return max(1, min(jobs, -(-items // ITEMS_PER_MESSAGE), MOST_PROCESSES))


def map_in_processes(
    task: Task[Item, Made], items: Sequence[Item], jobs: int
) -> tuple[list[Made], list[Item]]:
    """Return what was made of the items, in their order, and the items that were lost."""
    done: dict[int, Made] = {}
    left = list(range(len(items)))
    for backwards in (False, True):
        chunks = [
            left[start : start + ITEMS_PER_MESSAGE]
            for start in range(0, len(left), ITEMS_PER_MESSAGE)
        ]
        if chunks:
            ordered = chunks[::-1] if backwards else chunks
            _round(task, items, ordered, processes_for(len(left), jobs), done)
        left = [place for place in left if place not in done]
    lost: list[int] = []
    while left and len(lost) < MOST_DEATHS:
        _round(task, items, [[place] for place in left], 1, done)
        left = [place for place in left if place not in done]
        lost += left[:1]  # one process takes them in order: it was at the first
        left = left[1:]
    return [done[place] for place in sorted(done)], [items[place] for place in (*lost, *left)]


def _round(
    task: Task[Item, Made],
    items: Sequence[Item],
    chunks: Iterable[Sequence[int]],
    processes: int,
    done: dict[int, Made],
) -> None:
    """Do what can be done with one set of processes."""
    # Forked, whatever the default is: other ways start Python anew in the current folder, which may
    # be a repository of others with a `multiprocessing.py` of its own.
    fork = multiprocessing.get_context("fork")
    pool = ProcessPoolExecutor(processes, fork, initializer=_begin, initargs=(task,))
    try:
        asked: list[tuple[Sequence[int], Future[list[Made]]]] = []
        try:
            for chunk in chunks:
                asked.append((chunk, pool.submit(_do, task.do, [items[n] for n in chunk])))
        except BrokenProcessPool:
            pass  # what was not even asked for is left
        for chunk, future in asked:
            try:
                done.update(zip(chunk, future.result(), strict=True))
            except Exception:  # a process has died, or what it made cannot be sent: it is left
                continue
        pool.shutdown()
    except BaseException:
        _end(pool)
        raise


def _end(pool: ProcessPoolExecutor) -> None:
    """Kill the processes of a pool. Before Python 3.14 it has no public way to say so, and
    `shutdown` waits for what they are at."""
    processes = list((pool._processes or {}).values())
    pool.shutdown(wait=False, cancel_futures=True)
    for each in processes:
        each.kill()


def _begin(task: Task[Any, Any]) -> None:
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # a terminal asks all; the first process answers
    task.begin(*task.given)


def _do(do: Callable[[Item], Made], items: list[Item]) -> list[Made]:
    return [do(each) for each in items]
