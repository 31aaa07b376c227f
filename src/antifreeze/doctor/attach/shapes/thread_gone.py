"""Somebody waits at a queue between threads, and no other thread is there."""

from __future__ import annotations

from collections.abc import Iterator

from ...findings import Finding
from ..loaders import and_the_loop_waits
from ..locks import for_ever, forked, nobody_answers, queue_awaited
from ..scene import Actor, Scene, Strand
from ..torch_loader import ends
from ..waits import at_line, in_sample, loads_itself, loop_waits
from .base import LIKELY, Shape, are, kill_worker, people

NAME = "thread-gone"


def find(scene: Scene) -> Iterator[Finding]:
    stuck = [
        (actor, strand)
        for actor in _asked(scene)
        if (strand := actor.main) is not None
        and queue_awaited(strand)
        and for_ever(strand)
        and nobody_answers(actor, strand)
    ]
    for waits_for in dict.fromkeys(queue_awaited(strand) for _, strand in stuck):
        yield _finding(scene, [each for each in stuck if queue_awaited(each[1]) == waits_for])


def _asked(scene: Scene) -> list[Actor]:
    """Give those whose waiting matters; of forked workers `threads-after-fork` tells."""
    if loop_waits(scene):
        return [each for each in scene.living if in_sample(scene, each) and not forked(scene, each)]
    main = scene.main.main
    busy = main is None or scene.at_prompt or (ends(main) and not loads_itself(scene))
    return [] if busy else [scene.main]


def _finding(scene: Scene, stuck: list[tuple[Actor, Strand]]) -> Finding:
    actors = [actor for actor, _ in stuck]
    _, first = stuck[0]
    main = scene.main in actors
    puts = first.calls("put", "queue.py") is not None
    does = "take anything out" if puts else "put anything in"
    return Finding(
        NAME,
        LIKELY,
        f"{people(actors)} {are(actors, 'waits', 'wait')} for {queue_awaited(first)},"
        f" {at_line(first)}, and no other thread is there that could {does}: the one that should"
        " has ended (an error ends a thread, and nothing else), or was never started"
        + ("" if main else and_the_loop_waits(scene, actors, are(actors, "it", "them"))),
        evidence=(
            f"{people(actors)}: no CPU, at the same line in both looks, without a limit:"
            f" {first.at}",
            "a queue.Queue is for the threads of one process, and every other thread of this one is"
            " idle, or waits too",
        ),
        get_out=(
            "see what the program has printed: 'Exception in thread ...' says which one has ended,"
            " and why",
            f"kill -INT {scene.main.pid}    (KeyboardInterrupt at that line: the script can save;"
            " what it does not save is lost)"
            if main
            else kill_worker(actors),
        ),
        prevent=(
            "have the thread put its error into the queue, and raise it where it is taken out; or"
            " get(timeout=...) in a loop that looks whether the thread is alive",
        ),
        pids=tuple(each.pid for each in actors),
    )


SHAPE = Shape(
    name=NAME,
    title="Somebody waits at a queue, and the thread at its other end is gone",
    what=(
        "A thread that prefetches batches, or writes results, has ended with an error. That ends"
        " the thread only: the error is printed, and the program goes on, until it waits for the"
        " queue that this thread filled or emptied. It then waits for ever. The loader and its"
        " workers are well."
    ),
    tell=(
        "The main thread, of the program or of a worker, sleeps without a limit in `get` or `put`"
        " of a `queue.Queue`, at the same line in two looks, and every other thread of its process"
        " is idle or sleeps without a limit too. A thread of C that calls Python is not seen: so it"
        " is likely, and not certain."
    ),
    get_out=(
        "`kill -INT PID` raises KeyboardInterrupt where the main thread waits, and the script can"
        " save. In a worker: `kill -9 PID`."
    ),
    prevent="Hand errors of threads on, through the queue, and give waits a limit.",
    find=find,
)
