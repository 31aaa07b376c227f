"""Processes wait for a lock of multiprocessing that nobody gives back: its holder has died, or has
forgotten it."""

from __future__ import annotations

from collections.abc import Iterator

from ...findings import Finding
from ..analyse.lock_waits import (
    Wait,
    address,
    awaits_room,
    for_ever,
    is_service,
    shared_owner,
    taken_before,
    wait_of,
)
from ..analyse.threads_and_processes import Actor, Role, Scene, Strand
from ..analyse.torch_loader import buried
from ..analyse.waits import at_line, loop_waits
from ..facts import Frame
from .base import LIKELY, POSSIBLE, Cause, are

NAME = "lock-of-the-dead"
_OF_BATCHES = "the lock of the queue that carries the batches"
_OF_THE_SCRIPT = "a lock between processes (multiprocessing)"
_FOR_THREADS = (Wait.RESULT, Wait.THREAD, Wait.NOTICE)
Waiting = list[tuple[Actor, Strand]]


def find(scene: Scene) -> Iterator[Finding]:
    for waiting in _groups(scene).values():
        holders = _may_hold(scene, waiting)
        if not any(each.role is not Role.CHILD for each in holders):
            yield _finding(scene, waiting, holders)


def _finding(scene: Scene, waiting: Waiting, holders: list[Actor]) -> Finding:
    actors = list({actor.pid: actor for actor, _ in waiting}.values())
    _, first = waiting[0]
    dead = list(_dead(scene))
    twice = next((outer for _, each in waiting for outer in taken_before(each)), None)
    who = " and ".join(each.label for each in actors) if len(actors) < 3 else _several(actors)
    pids = " ".join(str(each.pid) for each in actors if each.role is Role.WORKER)
    get_out = (
        f"kill -9 {pids}    (the loop raises 'DataLoader worker is killed': the script can save;"
        " start it anew, since the lock stays taken)"
        if pids
        else f"kill -INT {scene.main.pid}    (KeyboardInterrupt at that line: the script can save)"
    )
    known = first.frames and not holders and (dead or twice)  # without stacks: or an event
    return Finding(
        NAME,
        LIKELY if known else POSSIBLE,
        f"{who} {are(actors, 'waits', 'wait')} for {_lock(first)}, {at_line(first)}, and no process"
        f" that is alive seems to be at work with it: {_story(scene, first, bool(dead), twice)}",
        evidence=(
            f"{who}: asleep in a semaphore between processes without a limit, at the same line in"
            " both looks",
            "every worker waits for it, or for something to do"
            if scene.workers
            else "no other process of the program is there",
            *dead,
            *(f"{each.label} could have it too: {_place(each)}" for each in holders),
        ),
        get_out=(get_out,),
        prevent=(
            "take it in a `with`, which gives it back after an error too, for as short a time as"
            " possible; make a new lock when you make a new loader after an error",
            "flock on a file (fcntl.flock) is released by the kernel when its holder dies",
        ),
        pids=tuple(each.pid for each in actors),
        general=_lock(first) == _OF_BATCHES,  # a worker had it, and why that died says more
    )


def _dead(scene: Scene) -> Iterator[str]:
    """Say who is known to have died."""
    yield from (f"{each.label} is dead" for each in scene.workers if each.dead)
    yield from (f"worker process {pid} is dead" for pid in scene.missing)
    if count := buried(scene):
        yield (
            f"{count} more {'worker has' if count == 1 else 'workers have'} died: the main process"
            " still has what it needed to talk to them"
        )


def _story(scene: Scene, strand: Strand, died: bool, twice: Frame | None) -> str:
    """Say why nobody gives it back, as far as is known."""
    if twice is not None:
        return (
            f"it was taken in {twice}, by the same process, and such a lock cannot be taken twice"
        )
    if died:
        return "who had it was killed or ended, and such a lock is not given back by dying"
    loop = scene.loop if loop_waits(scene) else None
    main = f", or the main process has it, {at_line(loop)}, while it waits" if loop else ""
    if _lock(strand) != _OF_THE_SCRIPT:
        return f"a process that ended in the middle of a put or a get leaves it taken{main}"
    return (
        f"it was taken and not given back (an error between acquire and release){main}, or a worker"
        " of an earlier loader died with it"
    )


def _groups(scene: Scene) -> dict[object, Waiting]:
    """Give who waits for which lock between processes."""
    found: dict[object, Waiting] = {}
    for actor in scene.all:
        for strand in actor.strands:
            if wait_of(strand) is Wait.SEMAPHORE and for_ever(strand) and _is_lock(strand):
                key = strand.thread.lock_file or address(strand)
                found.setdefault(key, []).append((actor, strand))
    return found


def _is_lock(strand: Strand) -> bool:
    """Say that it is a lock or semaphore between processes, and no event or condition; and none
    that names its owner, which `file-lock` tells of."""
    if strand.calls("wait", "multiprocessing/synchronize.py") or awaits_room(strand):
        return False
    if shared_owner(strand):
        return False
    file = strand.thread.lock_file
    if "/sem." in file or strand.in_native("SemLock", "sem_wait", "mutex_lock") is not None:
        return True
    at = strand.at
    return not file and at is not None and at.file.startswith("multiprocessing/")


def _may_hold(scene: Scene, waiting: Waiting) -> list[Actor]:
    """Give the living processes that may have the lock: those that do something else."""
    strands = [each for _, each in waiting]
    found = []
    for actor in scene.all:
        if actor.dead or actor.role in (Role.HELPER, Role.OUR_NURSERY, Role.LAUNCHER):
            continue
        if (actor is scene.main and _awaits_batch(scene)) or _polls_unseen(actor):
            continue
        free = [each for each in actor.strands if each not in strands and not is_service(each)]
        at_rest = scene.idle(actor) and len(free) == 1
        if free and not at_rest and not (len(free) < len(actor.strands) and _waits(free)):
            found.append(actor)
    return found


def _awaits_batch(scene: Scene) -> bool:
    """Say that the main process waits for a batch, and its main thread for nothing else."""
    main = scene.main.main
    if main is None or not (loop_waits(scene) and main.frames):
        return False
    return main is scene.loop or wait_of(main) in _FOR_THREADS


def _polls_unseen(actor: Actor) -> bool:
    """Say that there are no stacks, and that it waits for a message, as who is idle does."""
    strand = actor.main
    return strand is not None and not strand.frames and "poll" in strand.thread.waits_in


def _waits(strands: list[Strand]) -> bool:
    """Say that all of them wait for another thread of theirs, which waits for the lock."""
    return all(wait_of(each) in _FOR_THREADS and for_ever(each) for each in strands)


def _lock(strand: Strand) -> str:
    if strand.calls("_feed", "multiprocessing/queues.py"):
        return _OF_BATCHES
    if strand.calls("get", "multiprocessing/queues.py"):
        return "the lock of a queue between processes"
    return _OF_THE_SCRIPT


def _several(actors: list[Actor]) -> str:
    workers = [each for each in actors if each.role is Role.WORKER]
    rest = [each.label for each in actors if each.role is not Role.WORKER]
    return " and ".join([f"{len(workers)} workers", *rest])


def _place(actor: Actor) -> str:
    return at_line(actor.main) if actor.main is not None else "its stack is not known"


CAUSE = Cause(NAME, find)
