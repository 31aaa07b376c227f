"""Somebody waits for word of another process, and everybody waits."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from enum import Enum

from ...findings import Confidence, Finding
from ..analyse import torch_loader as torchs
from ..analyse.lock_waits import Wait, awaits_room, is_service, wait_of
from ..analyse.threads_and_processes import Actor, Role, Scene, Strand
from ..analyse.waits import at_line, loop_waits, sleeps
from .base import LIKELY, POSSIBLE, Cause, are, kill_worker, people, where

NAME = "word-of-another-process"
_SYNC = "multiprocessing/synchronize.py"
_MANAGERS = "multiprocessing/managers.py"
_ASKS = ("_callmethod", "_incref", "_connect")  # how a proxy speaks to its manager
_LISTENS = ("_recv", "_poll", "accept")  # in multiprocessing's connections
_CONDITIONS = {  # whose wait it is, by a function on the way to it
    "Barrier.wait": "the other parties of a barrier",
    "Event.wait": "an event (multiprocessing.Event) that nobody sets",
    "JoinableQueue.join": "the tasks of a queue to be done",
}
_CONDITION = "a notice (multiprocessing.Condition) that nobody gives"
_QUEUE = "something to come out of a queue between processes, which is empty"
_ROOM = "room in a queue between processes, which is full"
_MESSAGE = "a message of another process"
_MANAGER = "an answer of a manager (multiprocessing.Manager)"
_POOL = "a result of a pool of processes (multiprocessing.Pool)"
_POOLS = "multiprocessing/pool.py"


@dataclass(frozen=True, slots=True)
class Waiting:
    """One thread that waits for word."""

    actor: Actor
    strand: Strand
    what: str


class Hope(Enum):
    """Whether a process may still say the word."""

    NONE = "it waits for the others"
    SOME = "one of its threads sleeps, or waits for something else"
    MUCH = "it does something"


def find(scene: Scene) -> Iterator[Finding]:
    waiting = [each for actor in _asked(scene) if (each := _of(actor)) is not None]
    if not waiting or scene.ours or any(each.stopped for each in scene.all):
        return
    among = [each.actor for each in waiting]
    rest = [(each, _hope(scene, each)) for each in _speakers(scene) if each not in among]
    if any(hope is Hope.MUCH for _, hope in rest):
        return  # somebody does something, and may say the word when it is done
    for what in dict.fromkeys(each.what for each in waiting):
        same = [each for each in waiting if each.what == what]
        yield _finding(scene, what, same, rest)


def _asked(scene: Scene) -> list[Actor]:
    """Give those whose waiting matters."""
    if loop_waits(scene):
        return [each for each in torchs.workers(scene) if not scene.idle(each)]
    main = scene.main.main
    return [] if main is None or torchs.ends(main) else [scene.main]


def _of(actor: Actor) -> Waiting | None:
    strand = actor.main
    if strand is None or not strand.frames or not torchs.waits_as_before(strand) or sleeps(strand):
        return None
    what = _what(strand)
    return None if what is None else Waiting(actor, strand, what)


def _what(strand: Strand) -> str | None:
    if strand.calls("_next_data", torchs.LOADER):
        return None
    if any(strand.calls(each, _MANAGERS) for each in _ASKS):
        return _MANAGER
    if strand.calls("wait", _POOLS) or strand.calls("next", _POOLS):
        return _POOL
    if strand.calls("wait", _SYNC) and wait_of(strand) is Wait.SEMAPHORE:
        names = [each.name for each in strand.frames]
        return next((said for name, said in _CONDITIONS.items() if name in names), _CONDITION)
    if strand.calls("_recv", torchs.CONNECTION) or strand.calls("_poll", torchs.CONNECTION):
        return _QUEUE if strand.calls("get", torchs.QUEUES) else _MESSAGE
    if awaits_room(strand):
        return _ROOM
    if strand.calls("get", torchs.QUEUES) and wait_of(strand) is Wait.SEMAPHORE:
        return _QUEUE  # another one waits at the queue, and this one for its turn
    return None


def _speakers(scene: Scene) -> list[Actor]:
    """Give the living processes that could say something: others have not what it takes."""
    mine = scene.main.process.command
    return [
        each
        for each in scene.all
        if not each.dead
        and each.role not in (Role.HELPER, Role.LAUNCHER)
        and (
            each.role is not Role.CHILD or each.process.command == mine or _by_multiprocessing(each)
        )
    ]


def _by_multiprocessing(actor: Actor) -> bool:
    return "multiprocessing" in " ".join(actor.process.command)


def _hope(scene: Scene, actor: Actor) -> Hope:
    """Say how far a process may still say the word."""
    hope = Hope.NONE
    for strand in actor.strands:
        if not strand.frames or _only_waits(scene, actor, strand):
            continue
        if not strand.stuck or actor.role is Role.CHILD:
            return Hope.MUCH  # it moves; or it is a producer that waits for what it is to give
        hope = Hope.SOME
    return hope


def _only_waits(scene: Scene, actor: Actor, strand: Strand) -> bool:
    """Say that it waits for others of the program, and is not the one that they wait for."""
    if not torchs.waits_as_before(strand):
        return False
    if (
        wait_of(strand) is not None
        or is_service(strand)
        or (strand is actor.main and scene.idle(actor))
    ):
        return True
    return any(strand.calls(each, torchs.CONNECTION) for each in _LISTENS)


def _finding(
    scene: Scene, what: str, waiting: list[Waiting], rest: list[tuple[Actor, Hope]]
) -> Finding:
    actors = [each.actor for each in waiting]
    later = [each for each, hope in rest if hope is Hope.SOME]
    readers = [each for each in waiting if wait_of(each.strand) is not Wait.SEMAPHORE]
    first = (readers or waiting)[0].strand
    sure: Confidence = POSSIBLE if later or (what == _QUEUE and not readers) else LIKELY
    main = actors[0] is scene.main
    loop = scene.waits_for_batch
    return Finding(
        NAME,
        sure,
        f"{people(actors)} {are(actors, 'waits', 'wait')} for {what}, {at_line(first)}, and"
        f" {_why(scene, what)}"
        + (f"; the loop waits for {are(actors, 'its', 'their')} batch, in {loop}" if loop else ""),
        evidence=(
            f"{people(actors)}: no CPU, at the same line in both looks: {first.at}",
            *_of_manager(scene, what),
            *(
                f"{each.label} waits too, {_place(each)}"
                for each, hope in rest[:4]
                if hope is Hope.NONE
            ),
            *(f"{each.label} could still say it: it is {_place(each)}" for each in later[:2]),
            *_dead(scene),
        ),
        get_out=(
            f"kill -INT {scene.main.pid}    (KeyboardInterrupt at that line: the script can save;"
            " what it does not save is lost)"
            if main
            else kill_worker(actors),
        ),
        prevent=(
            "put a limit on such waits (wait(timeout=...), get(timeout=...)), and look whether who"
            " should answer is alive",
            "say it before the loop begins: while that waits for a batch, nothing after it runs; a"
            " barrier has as many parties as there are workers",
        ),
        pids=tuple(each.pid for each in actors),
        general=True,
    )


def _why(scene: Scene, what: str) -> str:
    if what == _POOL:
        return _of_pool(scene)
    if what == _MANAGER:
        return "none comes: " + (
            _held_in_manager(scene) or "the manager waits for something itself"
        )
    if what == _ROOM:
        return (
            "nobody takes anything out: every other process of the program waits too, or has ended"
        )
    return "nobody is left to speak: every other process of the program waits too, or has ended"


def _of_pool(scene: Scene) -> str:
    """Say what the processes of a pool do."""
    pool = [each for each in scene.others if each.main and each.main.calls("worker", _POOLS)]
    idle = [each for each in pool if each.main and each.main.calls("get", torchs.QUEUES)]
    if pool and len(idle) == len(pool):
        return (
            f"its {len(pool)} processes have nothing to do: the task was lost, most often because"
            " the process that had it was killed (a pool starts another one, and forgets the task)"
        )
    busy = [each for each in pool if each not in idle]
    places = "; ".join(f"process {each.pid} is {_place(each)}" for each in busy[:2])
    return f"none comes: {places or 'its processes have ended'}"


def _held_in_manager(scene: Scene) -> str:
    """Say that the manager waits for a lock of its own, for this client."""
    for _, strand in _servers(scene):
        if wait_of(strand) is Wait.LOCK and strand.at == strand.calls("serve_client", _MANAGERS):
            return (
                "it is a lock of the manager's that somebody has taken and not given back (who had"
                " it may have died: a manager does not notice)"
            )
    return ""


def _servers(scene: Scene) -> list[tuple[Actor, Strand]]:
    return [
        (actor, strand)
        for actor in scene.others
        for strand in actor.strands
        if strand.calls("serve_client", _MANAGERS)
    ]


def _of_manager(scene: Scene, what: str) -> list[str]:
    if what != _MANAGER:
        return []
    found = {actor.pid: strand for actor, strand in _servers(scene)}
    return [f"the manager is process {pid}; its thread is at {s.at}" for pid, s in found.items()]


def _dead(scene: Scene) -> list[str]:
    return [
        f"process {each.pid} of the program is dead: {torchs.how_it_died(each.process)}"
        for each in (*scene.workers, *scene.others)
        if each.dead and each.role in (Role.CHILD, Role.WORKER)
    ][:3]


def _place(actor: Actor) -> str:
    return where(actor.main) if actor.main is not None else "at an unknown line"


CAUSE = Cause(NAME, find)
