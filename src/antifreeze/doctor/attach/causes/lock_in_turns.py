"""Nothing is stuck: one lock lets the workers load one after the other."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

from ...findings import Finding
from ..analyse.lock_waits import Wait, in_file_lock_call, wait_of
from ..analyse.threads_and_processes import Actor, Scene, Strand
from ..analyse.waits import at_line, in_sample, loop_waits
from .base import LIKELY, Cause, people

NAME = "lock-in-turns"
_QUEUES = "multiprocessing/queues.py"


@dataclass(frozen=True, slots=True)
class Turns:
    """Workers that take turns at one lock."""

    lock: str
    before: tuple[Actor, ...]  # who waited for it in the first look
    now: tuple[Actor, ...]
    others: tuple[Actor, ...]  # who has gone on meanwhile, and does not wait for it: one has it

    @property
    def all(self) -> tuple[Actor, ...]:
        found = {each.pid: each for each in (*self.before, *self.now, *self.others)}
        return tuple(sorted(found.values(), key=lambda each: each.number))


def find(scene: Scene) -> Iterator[Finding]:
    for turns in taken(scene):
        yield _finding(scene, turns)


def taken(scene: Scene) -> list[Turns]:
    """Give the locks for which workers wait, and which change hands."""
    if not loop_waits(scene) or len(scene.living) < 2:
        return []
    workers = [each for each in scene.living if in_sample(scene, each)]
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


def _moved(worker: Actor) -> bool:
    return worker.main is not None and worker.main.before is not None and worker.main.moved


def _awaited(worker: Actor, look: int) -> str:
    """Name the lock that a worker waited for in one of the looks; nothing if it did not."""
    strand = worker.main
    if strand is None or strand.before is None:
        return ""
    if look == 0:
        strand = replace(strand, thread=strand.before)
    call = strand.thread.call
    if in_file_lock_call(call):
        path = _path(worker, strand, call[1], look)
        return f"a lock on the file {path}" if path else ""
    if wait_of(strand) is not Wait.SEMAPHORE or strand.calls("get", _QUEUES):
        return ""
    if strand.calls("put", _QUEUES) or not strand.thread.lock_file:
        return ""
    return f"a lock between processes (multiprocessing) [{strand.thread.lock_file}]"


def _path(worker: Actor, strand: Strand, number: int, look: int) -> str:
    process = worker.before if look == 0 and worker.before is not None else strand.process
    return next((each.target for each in process.descriptors if each.number == number), "")


def _finding(scene: Scene, turns: Turns) -> Finding:
    lock = turns.lock.partition(" [")[0]
    waiting = list(turns.now or turns.before)
    strand = waiting[0].main
    assert strand is not None
    if not turns.now:
        assert strand.before is not None
        strand = replace(strand, thread=strand.before)
    holder = turns.others[0]
    at_work = f"{holder.label} is {at_line(holder.main)}" if holder.main is not None else ""
    count = len(scene.living)
    return Finding(
        NAME,
        LIKELY,
        f"nothing is stuck, but the workers take turns: {people(list(turns.all))} load one after"
        f" the other, since each wants {lock}, {at_line(strand)}; {count} of them are about as"
        " fast as one, and the loop waits for them",
        evidence=(
            f"in the first look {_names(turns.before)} waited for it, in the second"
            f" {_names(turns.now)}, {scene.seconds:.1f} s later: it "
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


def _names(actors: tuple[Actor, ...]) -> str:
    return people(list(actors)) if actors else "nobody"


CAUSE = Cause(NAME, find, overrules_unsure=True)
