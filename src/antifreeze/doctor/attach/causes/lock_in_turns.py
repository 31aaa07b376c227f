"""Nothing is stuck: one lock lets the workers load one after the other."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

from ...findings import Finding
from ..analyse.library_files import QUEUES
from ..analyse.lock_waits import Wait, in_file_lock_call, wait_of
from ..analyse.threads_and_processes import Program, WatchedProcess, WatchedThread
from ..analyse.waits import at_line, in_sample, loop_waits
from .base import LIKELY, Cause, names_of

NAME = "lock-in-turns"


@dataclass(frozen=True, slots=True)
class Turns:
    """Workers that take turns at one lock."""

    lock: str
    before: tuple[WatchedProcess, ...]  # who waited for it in the first look
    now: tuple[WatchedProcess, ...]
    others: tuple[
        WatchedProcess, ...
    ]  # who has gone on meanwhile, and does not wait for it: one has it

    @property
    def all(self) -> tuple[WatchedProcess, ...]:
        found = {each.pid: each for each in (*self.before, *self.now, *self.others)}
        return tuple(sorted(found.values(), key=lambda each: each.number))


def find(program: Program) -> Iterator[Finding]:
    for turns in locks_in_turns(program):
        yield _finding(program, turns)


def locks_in_turns(program: Program) -> list[Turns]:
    """Return the locks for which workers wait, and which change hands."""
    if not loop_waits(program) or len(program.living) < 2:
        return []
    workers = [each for each in program.living if in_sample(program, each)]
    found = []
    for lock in dict.fromkeys(
        filter(None, (_awaited(each, at) for each in workers for at in (0, 1)))
    ):
        before = tuple(each for each in workers if _awaited(each, 0) == lock)
        now = tuple(each for each in workers if _awaited(each, 1) == lock)
        others = tuple(each for each in workers if each not in now and _moved(each))
        changed = before != now or any(_moved(each) for each in now)
        if changed and others:
            found.append(Turns(lock, before, now, others))
    return found


def _moved(worker: WatchedProcess) -> bool:
    return worker.main is not None and worker.main.before is not None and worker.main.moved


def _awaited(worker: WatchedProcess, look: int) -> str:
    """Name the lock that a worker waited for in one of the looks; nothing if it did not."""
    thread = worker.main
    if thread is None or thread.before is None:
        return ""
    if look == 0:
        thread = replace(thread, now=thread.before)
    call = thread.now.call
    if in_file_lock_call(call):
        path = _path(worker, thread, call[1], look)
        return f"a lock on the file {path}" if path else ""
    if wait_of(thread) is not Wait.SEMAPHORE or thread.calls("get", QUEUES):
        return ""
    if thread.calls("put", QUEUES) or not thread.now.lock_file:
        return ""
    return f"a lock between processes (multiprocessing) [{thread.now.lock_file}]"


def _path(worker: WatchedProcess, thread: WatchedThread, number: int, look: int) -> str:
    process = worker.before if look == 0 and worker.before is not None else thread.process
    return next((each.target for each in process.descriptors if each.number == number), "")


def _finding(program: Program, turns: Turns) -> Finding:
    lock = turns.lock.partition(" [")[0]
    waiting = list(turns.now or turns.before)
    thread = waiting[0].main
    assert thread is not None
    if not turns.now:
        assert thread.before is not None
        thread = replace(thread, now=thread.before)
    holder = turns.others[0]
    at_work = f"{holder.label} is {at_line(holder.main)}" if holder.main is not None else ""
    count = len(program.living)
    return Finding(
        NAME,
        LIKELY,
        f"nothing is stuck, but the workers take turns: {names_of(list(turns.all))} load one after"
        f" the other, since each wants {lock}, {at_line(thread)}; {count} of them are about as"
        " fast as one, and the loop waits for them",
        evidence=(
            f"in the first look {_names(turns.before)} waited for it, in the second"
            f" {_names(turns.now)}, {program.seconds:.1f} s later: it "
            + ("changes hands" if turns.before != turns.now else "was given back and taken anew"),
            *([f"meanwhile {at_work}"] if at_work else []),
        ),
        get_out=("nothing is to be done: it goes on, slowly; more workers would not help",),
        prevent=(
            "hold the lock only for what two may not do at once, not while a file is read, decoded"
            " or fetched",
            "or do without it: give each worker a connection, a handle or a file of its own (opened"
            " on first use in `__getitem__`); what is only read needs no lock",
        ),
        pids=tuple(each.pid for each in turns.all),
        harmless=True,
    )


def _names(processes: tuple[WatchedProcess, ...]) -> str:
    return names_of(list(processes)) if processes else "nobody"


CAUSE = Cause(NAME, find, overrules_unsure=True)
