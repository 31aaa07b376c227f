"""Threads of one process wait for each other: each has what the other wants."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

from ...findings import Confidence, Finding
from ..analyse.lock_waits import (
    HELD,
    Wait,
    acquired_before,
    address,
    alike,
    forked,
    held_at_fork,
    others,
    owner,
    same_line,
    wait_of,
    waits_without_limit,
)
from ..analyse.threads_and_processes import Program, WatchedProcess, WatchedThread, is_library
from ..analyse.waits import at_line, user_line
from .base import CERTAIN, LIKELY, POSSIBLE, Cause, kill_worker, names_of

NAME = "deadlock-of-threads"
_IMPORTS = "_load_unlocked"  # in Python's import system: a module's code runs, and its lock is held


@dataclass(frozen=True, slots=True)
class Knot:
    """Threads that wait for each other."""

    threads: list[WatchedThread]
    confidence: Confidence
    story: str
    proof: str


def find(program: Program) -> Iterator[Finding]:
    groups: dict[object, list[tuple[WatchedProcess, Knot]]] = {}
    for process in (program.main, *program.living):
        knot = (
            _knot(program, process)
            if process is program.main or not program.idle(process)
            else None
        )
        if knot is not None:
            key = (process.role, *(each.own_line for each in knot.threads))
            groups.setdefault(key, []).append((process, knot))
    for found in groups.values():
        processes = [process for process, _ in found]
        surest = min((knot for _, knot in found), key=lambda knot: knot.confidence.rank)
        yield _finding(program, alike(program, processes), surest)


def _finding(program: Program, processes: list[WatchedProcess], knot: Knot) -> Finding:
    main = processes[0] is program.main
    return Finding(
        NAME,
        knot.confidence,
        f"in {names_of(processes)} {knot.story}",
        evidence=(
            *(
                f"{_name(each)} waits for {_waits_for(each)}, {at_line(each)}"
                for each in knot.threads
            ),
            "none of them has moved or used any CPU between two looks, and none has a limit",
            knot.proof,
        ),
        get_out=(
            f"kill -INT {program.main.pid}    (KeyboardInterrupt where the main thread waits: the"
            " script can save; what it has not saved is lost if it does not)"
            if main
            else kill_worker(processes),
        ),
        prevent=(
            "take locks in the same order everywhere; do not wait for a thread (join, result) while"
            " holding what it needs; no threads and no joins while a module is being imported",
        ),
        pids=tuple(each.pid for each in processes),
    )


def _knot(program: Program, process: WatchedProcess) -> Knot | None:
    threads = [each for each in others(process) if each.frames]
    waiting = [each for each in threads if wait_of(each) in HELD and waits_without_limit(each)]
    if not waiting:
        return None
    if (twice := _taken_before(waiting)) is not None:
        return twice
    by_owner = _round(waiting)
    if by_owner:
        return Knot(
            by_owner,
            CERTAIN,
            f"{len(by_owner)} threads wait for each other: each has a lock that the next one wants",
            "the locks say so: each names its owner",
        )
    free = [each for each in threads if wait_of(each) is None or not waits_without_limit(each)]
    if not all(map(same_line, free)):
        return None  # one of them does something: it may have the lock, and give it back
    knot = _import_knot(threads, waiting) or _lock_knot(program, process, threads, waiting)
    seen = all(each.native for each in waiting)
    if knot is None or (seen and all(map(_is_on_call, free))):
        return knot
    # Somebody sleeps for a time, or reads: that may be the one who has the lock. Or what waits is
    # C code that was not seen.
    sure = len(knot.threads) > 1 or knot.confidence is POSSIBLE
    return replace(knot, confidence=POSSIBLE) if sure else None


def _is_on_call(thread: WatchedThread) -> bool:
    """Whether a thread waits for an event or a time to come, as those do that watch or serve."""
    return wait_of(thread) is Wait.NOTICE or thread.calls("select", "selectors.py") is not None


def _round(waiting: list[WatchedThread]) -> list[WatchedThread]:
    """Return threads whose locks are owned by each other, if there are such."""
    by_tid = {each.now.tid: each for each in waiting}
    for start in waiting:
        way = [start]
        while (after := by_tid.get(owner(way[-1]))) is not None and after not in way:
            way.append(after)
        if after is start and len(way) > 1:
            return way
    return []


def _import_knot(threads: list[WatchedThread], waiting: list[WatchedThread]) -> Knot | None:
    """One thread waits for a module that another imports, and that one waits too."""
    wants = [each for each in waiting if wait_of(each) is Wait.IMPORT]
    imports = [each for each in threads if each not in wants and each.calls(_IMPORTS)]
    if not wants or not imports:
        return None
    joined = wait_of(imports[0]) in (Wait.THREAD, Wait.RESULT)
    what = "waits for a thread" if joined else "waits for a lock"
    return Knot(
        [imports[0], wants[0]],
        CERTAIN if joined and len(threads) == 2 and wait_of(imports[0]) is Wait.THREAD else LIKELY,
        f"an import does not end: {at_line(imports[0])} it {what}, and that thread waits,"
        f" {at_line(wants[0])}, for the same import to end",
        "the first is in the middle of an import, and Python gives a module to others when its"
        " import has ended",
    )


def _lock_knot(
    program: Program,
    process: WatchedProcess,
    threads: list[WatchedThread],
    waiting: list[WatchedThread],
) -> Knot | None:
    places = {address(each) for each in waiting}
    if len(places) > 1:
        firsts = list({address(each): each for each in reversed(waiting)}.values())[::-1]
        lines = " and ".join(at_line(each) for each in firsts[:2])
        return Knot(
            firsts,
            LIKELY,
            f"{len(firsts)} threads wait for each other's locks, {lines}: each has one and wants"
            " another",
            f"{len(places)} different locks, and no other thread that could have them",
        )
    if forked(program, process):
        return _taken_twice(program, threads)
    wait_for_them = [each for each in threads if each not in waiting]
    blocks = [each for each in wait_for_them if wait_of(each) in (Wait.THREAD, Wait.RESULT)]
    if blocks:
        return Knot(
            [blocks[0], waiting[0]],
            LIKELY,
            f"{_name(blocks[0])} waits, {at_line(blocks[0])}, for another thread, which"
            f" waits, {at_line(waiting[0])}, for a lock that the first one has",
            "no other thread that could have the lock",
        )
    if len(threads) == 1:
        return Knot(
            threads,
            LIKELY,
            f"the only thread waits for a lock that nobody else can have, {at_line(threads[0])}: it"
            " has taken the lock already, or who took it has ended",
            "no other thread that could have the lock",
        )
    return None


def _taken_before(waiting: list[WatchedThread]) -> Knot | None:
    """A thread waits for a lock that it has itself, as its source says."""
    for thread in waiting:
        if outer := acquired_before(thread):
            here = outer[0] == user_line(thread)
            place = "further up in the same function" if here else f"in {outer[0]}"
            return Knot(
                [thread],
                LIKELY if thread.native else POSSIBLE,  # it could be a lock that counts
                f"{_name(thread)} waits for a lock that it has itself, {at_line(thread)}: it has"
                f" taken it {place}, and has not given it back (a plain lock cannot be taken"
                " twice)",
                "the source says so: both lines take the same lock, and the first stands around the"
                " call of the second",
            )
    return None


def _taken_twice(program: Program, threads: list[WatchedThread]) -> Knot | None:
    """A forked worker's lock may be one that was held at the fork; if the main process has no other
    thread that could have done so, and its own copy is free, a knot is as possible."""
    if any(each.frames for each in held_at_fork(program)):
        return None
    if len(threads) != 1 or threads[0].now.lock_in_parent[:1] == (0,):
        return None
    if sum(not is_library(each) for each in threads[0].own_frames) < 2:
        return None  # nobody is under way who could have taken it before
    return Knot(
        threads,
        POSSIBLE,
        f"the only thread waits for a lock that no other thread has, {at_line(threads[0])}: it has"
        " taken the lock already (a plain lock cannot be taken twice), unless the lock was held"
        " when the worker was forked",
        "the main process has no other thread now that could have held it",
    )


def _name(thread: WatchedThread) -> str:
    main = thread.now.tid == thread.process.pid
    return "the main thread" if main else f"thread {thread.now.name!r}"


def _waits_for(thread: WatchedThread) -> str:
    found = wait_of(thread)
    return found.value if found is not None else "something"


CAUSE = Cause(NAME, find)
