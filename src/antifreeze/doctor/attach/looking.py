"""Look at a program twice, and write down what is seen. Nothing is asked of it and nothing changed:
py-spy stops each process for some milliseconds."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from typing import Any

from ..._asked import ask
from ..._clock import monotonic, pause
from ..._version import VERSION
from . import held, proc
from .facts import Case, Look, Process, Thread
from .family import family, started_by
from .machine import machine
from .sockets import Sockets
from .stacks import Spy, Stacks
from .taken import with_taken

BETWEEN_S = 1.0  # two looks: long enough that whoever works has used a core meanwhile
SLEEPERS, SLEEPER_S = 6, 0.25  # how often, and how long, a sleeper is waited for
NATIVE = (
    6  # processes whose stacks are taken with the C code below Python's: a fifth of a second each
)
ALIKE = 1  # of those that were at the same line


class CannotLook(Exception):
    """There is nothing to look at; the text says why, for people."""


def look_at(pid: int, *, between_s: float = BETWEEN_S, spy: Spy | None = None) -> Case:
    """Look at the program of this process. Raises CannotLook."""
    _check(pid)
    spy = spy or Spy()
    pid = _program(proc.owner_of_thread(pid))
    members = family(pid)
    with ThreadPoolExecutor(1) as asker:
        answers = asker.submit(_ask, members)
        first, second = _look_twice(pid, members, between_s, spy)
        told = answers.result()  # bounded: each question is, and they are asked at once
    return Case(
        asked=pid, looks=(first, second), unseen=_unseen(second, pid), told=told, made_by=VERSION
    )


def _ask(members: list[int]) -> dict[str, Any]:
    """Ask those that have our own loader, by their number, as text: JSON knows no other."""
    with ThreadPoolExecutor(max(1, len(members))) as pool:
        asked = zip(members, pool.map(ask, members), strict=True)
        return {str(pid): said for pid, said in asked if said is not None}


def _look_twice(pid: int, members: list[int], between_s: float, spy: Spy) -> tuple[Look, Look]:
    # The stacks first and last: to be stopped for them must not count as having moved.
    stacks = spy.take(members)
    if (asked := stacks.get(pid)) is not None and asked.not_python:
        raise CannotLook(f"process {pid} is no Python program ({_command(pid)})")
    first = _look(pid, _seen(pid, members), stacks)
    pause(between_s)
    _wait_for_sleepers(first)
    processes = _seen(pid, family(pid))
    at = monotonic()
    second = _closer(replace(_look(pid, processes, _native_too(spy, processes, stacks)), at=at))
    if not proc.read(
        pid, "cmdline"
    ):  # also if it ended when /proc was read, and no stack was taken
        raise CannotLook(f"process {pid} has ended while it was being looked at")
    return first, second


def _wait_for_sleepers(first: Look) -> None:
    """Where a sample sleeps on purpose, give it time to wake up and to be sent: one that sleeps is
    slow, one that never comes is stuck."""
    asleep = [
        each
        for each in first.processes
        if _in_sample(each) and "nanosleep" in proc.sleeps_in(each.pid)
    ]
    for _ in range(SLEEPERS if asleep else 0):
        if any(proc.written(each.pid) != each.written_bytes for each in first.processes):
            return
        pause(SLEEPER_S)


def _in_sample(process: Process) -> bool:
    main = process.main_thread
    frames = main.frames if main is not None else ()
    return any(each.file.endswith(("_utils/fetch.py", "_worker/fetch.py")) for each in frames)


def _check(pid: int) -> None:
    if pid <= 0:
        raise CannotLook(f"{pid} is no process")
    if not proc.read(pid, "stat"):
        raise CannotLook(f"there is no process {pid}, or it cannot be seen from this container")
    if not proc.read(pid, "cmdline"):
        raise CannotLook(f"process {pid} has ended (a zombie), or is a part of the kernel")


def _program(pid: int) -> int:
    """Give the program to look at: where a shell or a scheduler was named, the one it has started,
    if there is but one."""
    if proc.runs_python(pid):
        return pid
    first = started_by(pid)
    if len(first) > 1:
        named = "; ".join(f"antifreeze attach {each} ({_command(each)})" for each in first[:3])
        words = f"process {pid} is no Python program ({_command(pid)})"
        raise CannotLook(f"{words}; it has started {len(first)}: {named}")
    return first[0] if first else pid


def _command(pid: int) -> str:
    command = tuple(proc.read(pid, "cmdline").rstrip("\0").split("\0"))
    return " ".join(proc.without_secrets(command))[:60]


def _seen(pid: int, members: list[int]) -> list[Process]:
    sockets = Sockets(pid)
    return [found for each in members if (found := proc.process(each, sockets)) is not None]


def _look(pid: int, seen: list[Process], stacks: dict[int, Stacks]) -> Look:
    processes = tuple(_with_stacks(each, stacks.get(each.pid)) for each in seen)
    return Look(monotonic(), processes, machine(pid), held.file_locks(processes))


def _closer(look: Look) -> Look:
    """Add what takes longer to find, and is asked once."""
    return replace(
        look,
        processes=with_taken(look.processes),
        file_locks=held.with_sharers(look.file_locks),
    )


def _native_too(spy: Spy, processes: list[Process], before: dict[int, Stacks]) -> dict[int, Stacks]:
    """Take stacks, with the C code in them of those that differ; what cannot be had with it, may be
    without."""
    alive = [each.pid for each in processes if each.state not in "ZX"]
    groups: dict[object, list[int]] = {}
    for pid in alive:
        known = before.get(pid, Stacks())
        places = tuple(thread.frames for thread in known.threads)
        groups.setdefault(places, []).append(pid)
    closely = [pid for group in groups.values() for pid in group[:ALIKE]][:NATIVE]
    stacks = spy.take(closely, native=True)
    failed = [pid for pid in closely if stacks[pid].error and not stacks[pid].not_python]
    return stacks | spy.take([pid for pid in alive if pid not in closely] + failed)


def _with_stacks(process: Process, stacks: Stacks | None) -> Process:
    if stacks is None or not stacks.threads:
        return replace(process, blind=stacks.error if stacks is not None else "")
    told = {each.tid: each for each in stacks.threads}
    if not any(each.tid in told for each in process.threads):
        # It is in a container, and py-spy gives the numbers that threads have there.
        inner = {proc.inner_number(process.pid, each.tid): each.tid for each in process.threads}
        told = {inner[tid]: each for tid, each in told.items() if tid in inner}
    threads = tuple(_both(each, told.get(each.tid)) for each in process.threads)
    return replace(process, threads=threads)


def _both(seen: Thread, told: Thread | None) -> Thread:
    """Join what the kernel says of a thread with what the interpreter says."""
    if told is None:
        return seen
    name = told.name if told.name and told.name != "MainThread" else seen.name
    return replace(seen, name=name, frames=told.frames, holds_gil=told.holds_gil)


def _unseen(look: Look, pid: int) -> tuple[str, ...]:
    """Say what could not be seen, and what would show it."""
    found = []
    main = next((each for each in look.processes if each.pid == pid), None)
    if main is not None and main.blind:
        found.append(f"no stacks: {main.blind}")
    if not any(each.descriptors for each in look.processes):
        found.append(f"no open files: sudo antifreeze attach {pid}")
    if look.machine.container:
        found.append("this is a container: processes and limits outside of it cannot be seen")
    return tuple(found)
