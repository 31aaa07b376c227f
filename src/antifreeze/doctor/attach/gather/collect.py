"""Look at a program twice, and write down what is seen. Nothing is asked of it and nothing changed:
py-spy stops each process for some milliseconds.

Who waits for an answer that takes some seconds looks, for a second, like one who waits for ever. So
who has not slept for `PATIENCE_S` when we come is watched until it has, or has moved: of a program
that hangs for longer, as most do that somebody asks about, the answer comes at once.

Who wakes up again and again, or computes, may get on or not. If the loop waits for it, it is
watched until it has read or written something, for `PATIENCE_S` at most, and looked at once more.
"""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from typing import Any

from ...._engine.attach_mailbox import ask
from ...._linux import procfs
from ...._linux.bounded_reads import unresponsive_processes
from ...._linux.clock import monotonic, pause
from ...._linux.socket_traffic import sockets_of
from ...._version import VERSION
from ..analyse.frames import is_at_work, waits_for_loader
from ..analyse.process_roles import is_starting
from ..facts import Case, Look, Process, Thread
from . import lock_state, pipe_readers, proc
from .lock_acquire_lines import with_acquire_lines
from .machine import machine
from .network_bytes import network_bytes, with_network_bytes
from .process_tree import processes_of_program, started_by
from .py_spy import PySpy, Stacks
from .socket_peers import Sockets
from .time_since_run import UNKNOWN, TimesSinceRun

BETWEEN_S = 1.0  # two looks: long enough that whoever works has used a core meanwhile
PATIENCE_S = 10.0  # that one sleeps who may be stuck: most servers and locks answer before
UNKNOWN_S = 4.0  # it is watched, where the kernel does not say since when it sleeps
WATCH_S = 0.1  # between two glances
GLIMPSE_S = 1.7  # between two stacks of who computes meanwhile: no step of a loop takes as long
SLEEPERS, SLEEPER_S = 6, 0.25  # how often, and how long, a sleeper is waited for
NATIVE = (
    6  # processes whose stacks are taken with the C code below Python's: a fifth of a second each
)
ALIKE = 1  # of those that were at the same line


class CannotLook(Exception):
    """There is nothing to look at; the text says why, for people."""


@dataclass(frozen=True, slots=True)
class Manner:
    """How to look. Who looks again and again keeps one: `asleep` remembers whom we have woken."""

    between_s: float = BETWEEN_S
    patience_s: float = PATIENCE_S
    spy: PySpy = field(default_factory=PySpy)
    asleep: TimesSinceRun = field(default_factory=TimesSinceRun)


def look_at(pid: int, manner: Manner | None = None) -> Case:
    """Look at the program of this process. Raises CannotLook."""
    _check(pid)
    pid = _program(proc.owner_of_thread(pid))
    members = processes_of_program(pid)
    with ThreadPoolExecutor(1) as asker:
        answers = asker.submit(_ask, members)
        looks = _look_twice(pid, members, manner or Manner())
        told = answers.result()  # bounded: each question is, and they are asked at once
    return Case(asked=pid, looks=looks, unseen=_unseen(looks[-1], pid), told=told, made_by=VERSION)


def _ask(members: list[int]) -> dict[str, Any]:
    """Ask those that have our own loader, by their number, as text: JSON knows no other."""
    return {str(pid): said for pid, said in ask(members).items()}


def _look_twice(pid: int, members: list[int], manner: Manner) -> tuple[Look, ...]:
    """Return two looks; and before them a third, if it had to be watched for long."""
    slept = manner.asleep.seconds(members)  # before anybody is stopped, and runs
    # The stacks first and last: to be stopped for them must not count as having moved.
    stacks = manner.spy.take(members)
    if (asked := stacks.get(pid)) is not None and asked.not_python:
        raise CannotLook(f"process {pid} is no Python program ({_command(pid)})")
    first = _with_sleep(_look(pid, _seen(pid, members), stacks), slept)
    looks = [first]
    pause(manner.between_s)
    if _watch(first, pid, manner, looks):
        # Two looks far apart see others wake up for nothing, as torch's do every five seconds.
        first = _since(first, _look(pid, _seen(pid, members), stacks))
        looks.append(first)
        pause(manner.between_s)
    _wait_for_sleepers(first, pid)
    processes = _seen(pid, processes_of_program(pid))
    at = monotonic()
    second = _look(pid, processes, _native_too(manner.spy, processes, stacks))
    second = _closer(
        replace(second, at=at, pipe_readers=pipe_readers.readers_of_pipes(second.processes))
    )
    if not proc.read(pid, "cmdline"):  # it may have ended before its stack could be taken
        late = pid in unresponsive_processes()
        why = "did not answer in time, in /proc," if late else "has ended"
        raise CannotLook(f"process {pid} {why} while it was being looked at")
    manner.asleep.disturbed(_unmoved(first, second))
    return (*looks, second)


def _watch(first: Look, asked: int, manner: Manner, looks: list[Look]) -> bool:
    """Wait until everybody who may be stuck has got on, or slept or done nothing else for long
    enough. Return whether it was waited, and nobody has got on. Adds looks at the stacks of those
    who compute meanwhile."""
    at_work = [
        each
        for each in first.processes
        if (is_at_work(each, asked) or is_starting(each)) and each.main_thread is not None
    ]
    awaited = any(waits_for_loader(each) for each in first.processes)
    waited = False
    sockets = {each.pid: _sockets(each.pid) for each in at_work}
    while True:  # bounded: everybody has been watched for long enough in the end
        elapsed = monotonic() - first.at
        there = [
            each
            for each in at_work
            if not _made_progress(each, awaited) and _sockets(each.pid) == sockets[each.pid]
        ]
        if not any(_to_be_watched(each, elapsed, manner.patience_s, awaited) for each in there):
            return waited and len(there) == len(at_work)
        if awaited and monotonic() - looks[-1].at >= GLIMPSE_S:
            looks.append(_look_at_stacks(there, manner.spy))
        pause(WATCH_S)
        waited = True


def _sockets(pid: int) -> frozenset[int]:
    """Return the sockets that a process has. One that asks a server again, by a new connection, has
    got on, though as many bytes went over that one as over the last."""
    return frozenset(sockets_of(pid).values())


def _look_at_stacks(processes: list[Process], spy: PySpy) -> Look:
    """Look at the stacks of those who run now, and at nothing else: who sleeps is let sleep."""
    running = [each for each in processes if proc.state(each.pid) == "R"]
    stacks = spy.take([each.pid for each in running])
    return Look(monotonic(), tuple(_with_stacks(each, stacks.get(each.pid)) for each in running))


def _made_progress(process: Process, awaited: bool) -> bool:
    """Whether a process has done something since the first look. While a loop waits for it, to wake
    up is not enough."""
    if awaited:
        io = proc.read_and_written(process.pid)
        came = process.network_bytes >= 0 and process.network_bytes != network_bytes(
            process.pid, process.parent
        )
        return came or io != (process.read_bytes, process.written_bytes)
    thread = process.main_thread
    assert thread is not None
    return proc.gave_way(process.pid, thread.tid) != thread.gave_way


def _to_be_watched(process: Process, elapsed: float, patience_s: float, awaited: bool) -> bool:
    thread = process.main_thread
    assert thread is not None
    asleep = thread.state in "SD" and proc.gave_way(process.pid, thread.tid) == thread.gave_way
    if asleep:
        return _too_short(thread, elapsed, patience_s)
    return awaited and elapsed < patience_s


def _too_short(thread: Thread, elapsed: float, patience_s: float) -> bool:
    """Whether a thread has not slept for long enough to be called stuck; nor will it sleep on for
    as long by its own will."""
    if thread.sleeps_s > patience_s:
        return False
    if thread.asleep_s < 0:
        return elapsed < min(UNKNOWN_S, patience_s)
    return thread.asleep_s + elapsed < patience_s


def _with_sleep(look: Look, slept: dict[tuple[int, int], float]) -> Look:
    return _each_thread(
        look, lambda pid, each: replace(each, asleep_s=slept.get((pid, each.tid), UNKNOWN))
    )


def _since(first: Look, now: Look) -> Look:
    """Return a later look with what the first one knew: who has not moved since sleeps on."""
    known = {(p.pid, each.tid): each for p in first.processes for each in p.threads}

    def slept(pid: int, thread: Thread) -> Thread:
        then = known.get((pid, thread.tid))
        if then is None or then.asleep_s < 0:
            return thread
        same = then.gave_way == thread.gave_way
        return replace(thread, asleep_s=then.asleep_s + now.at - first.at if same else 0.0)

    return _each_thread(now, slept)


def _each_thread(look: Look, change: Callable[[int, Thread], Thread]) -> Look:
    processes = tuple(
        replace(each, threads=tuple(change(each.pid, thread) for thread in each.threads))
        for each in look.processes
    )
    return replace(look, processes=processes)


def _unmoved(first: Look, second: Look) -> set[tuple[int, int]]:
    """Return the threads that have not run between the looks."""
    then = {(p.pid, each.tid, each.gave_way) for p in first.processes for each in p.threads}
    now = {(p.pid, each.tid, each.gave_way) for p in second.processes for each in p.threads}
    return {(pid, tid) for pid, tid, _ in then & now}


def _wait_for_sleepers(first: Look, asked: int) -> None:
    """Where a sample sleeps on purpose, give it time to wake up and to be sent: one that sleeps is
    slow, one that never comes is stuck."""
    asleep = [
        each
        for each in first.processes
        if is_at_work(each, asked) and "nanosleep" in proc.sleeps_in(each.pid)
    ]
    for _ in range(SLEEPERS if asleep else 0):
        if any(proc.written(each.pid) != each.written_bytes for each in first.processes):
            return
        pause(SLEEPER_S)


def _check(pid: int) -> None:
    if pid <= 0:
        raise CannotLook(f"{pid} is no process")
    if not proc.read(pid, "stat"):
        raise CannotLook(f"there is no process {pid}, or it cannot be seen from this container")
    if not proc.read(pid, "cmdline"):
        raise CannotLook(f"process {pid} has ended (a zombie), or is a part of the kernel")


def _program(pid: int) -> int:
    """Return the program to look at: where a shell or a scheduler was named, the one it has
    started, if there is but one."""
    if proc.runs_python(pid):
        return pid
    first = started_by(pid)
    if len(first) > 1:
        named = "; ".join(f"antifreeze attach {each} ({_command(each)})" for each in first[:3])
        words = f"process {pid} is no Python program ({_command(pid)})"
        raise CannotLook(f"{words}; it has started {len(first)}: {named}")
    return first[0] if first else pid


def _command(pid: int) -> str:
    command = tuple(procfs.strings(proc.read(pid, "cmdline")))[: proc.MOST_WORDS]
    return " ".join(proc.without_secrets(command))[:60]


def _seen(pid: int, members: list[int]) -> list[Process]:
    sockets = Sockets(pid)
    return with_network_bytes(
        found for each in members if (found := proc.process(each, sockets)) is not None
    )


def _look(pid: int, seen: list[Process], stacks: dict[int, Stacks]) -> Look:
    processes = tuple(_with_stacks(each, stacks.get(each.pid)) for each in seen)
    return Look(monotonic(), processes, machine(pid), lock_state.file_locks(processes))


def _closer(look: Look) -> Look:
    """Add what takes longer to find, and is asked once."""
    return replace(
        look,
        processes=with_acquire_lines(look.processes),
        file_locks=lock_state.with_sharers(look.file_locks),
    )


def _native_too(
    spy: PySpy, processes: list[Process], before: dict[int, Stacks]
) -> dict[int, Stacks]:
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
    """Return what could not be seen, and what would show it."""
    found = []
    main = next((each for each in look.processes if each.pid == pid), None)
    if main is not None and main.blind:
        found.append(f"no stacks: {main.blind}")
    if not any(each.descriptors for each in look.processes):
        found.append(f"no open files: sudo antifreeze attach {pid}")
    if late := unresponsive_processes():
        named = ", ".join(map(str, late[:3]))
        found.append(f"/proc did not answer in time about process {named}")
    for each in look.processes:
        if (there := proc.number_of_threads(each.pid)) > len(each.threads):
            found.append(f"only {len(each.threads)} of the {there} threads of process {each.pid}")
    if look.machine.container:
        found.append("this is a container: processes and limits outside of it cannot be seen")
    return tuple(found)
