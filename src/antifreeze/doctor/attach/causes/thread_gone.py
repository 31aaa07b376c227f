"""Somebody waits for another thread of the process to say something, and none is there."""

from __future__ import annotations

from collections.abc import Iterator

from ...._transport import own_frames
from ...findings import Confidence, Finding
from ..analyse.lock_waits import Wait, forked, nobody_answers, queue_awaited, wait_of
from ..analyse.threads_and_processes import Actor, Scene, Strand
from ..analyse.torch_loader import ends
from ..analyse.waits import at_line, in_sample, loads_itself, loop_waits
from ..analyse.workers_by_loader import and_the_loop_waits
from .base import LIKELY, POSSIBLE, Cause, are, kill_worker, people

NAME = "thread-gone"
_LOADERS = ("torch/utils/data/dataloader.py", own_frames.PACKAGE)


def find(scene: Scene) -> Iterator[Finding]:
    groups: dict[str, list[tuple[Actor, Strand]]] = {}
    for actor in _asked(scene):
        strand = actor.main
        if strand is not None and nobody_answers(actor, strand):
            groups.setdefault(_what(strand), []).append((actor, strand))
    for what, stuck in groups.items():
        sure = LIKELY if queue_awaited(stuck[0][1]) else POSSIBLE
        if sure is POSSIBLE and not scene.workers:
            continue  # a program that waits until it is told to end, as servers do
        yield _finding(scene, what, sure, stuck)


def _asked(scene: Scene) -> list[Actor]:
    """Give those whose waiting matters; of forked workers `threads-after-fork` tells."""
    if loop_waits(scene):
        return [each for each in scene.living if in_sample(scene, each) and not forked(scene, each)]
    main = scene.main.main
    return [scene.main] if main is not None and alone(scene, main) else []


def alone(scene: Scene, strand: Strand) -> bool:
    """Say that the main thread waits, without a limit, for a thread that is not there."""
    if scene.at_prompt or scene.main.stopped or ends(strand):
        return False
    if any(each.file.startswith(_LOADERS) for each in strand.frames) and not loads_itself(scene):
        return False
    return nobody_answers(scene.main, strand)


def _what(strand: Strand) -> str:
    """Say what a thread waits for. A thread of C may give a result, and a signal set an event."""
    if wait_of(strand) is Wait.RESULT:
        return Wait.RESULT.value
    return queue_awaited(strand) or "a notice (an event or a condition)"


def _finding(
    scene: Scene, what: str, sure: Confidence, stuck: list[tuple[Actor, Strand]]
) -> Finding:
    actors = [actor for actor, _ in stuck]
    _, first = stuck[0]
    main = scene.main in actors
    puts = first.calls("put", "queue.py") is not None
    does = "take anything out" if puts else "put anything in" if queue_awaited(first) else "answer"
    return Finding(
        NAME,
        sure,
        f"{people(actors)} {are(actors, 'waits', 'wait')} for {what},"
        f" {at_line(first)}, and no other thread is there that could {does}: the one that should"
        " has ended (an error ends a thread, and nothing else), or was never started"
        + ("" if main else and_the_loop_waits(scene, actors, are(actors, "it", "them"))),
        evidence=(
            f"{people(actors)}: no CPU, at the same line in both looks, without a limit:"
            f" {first.at}",
            "every other thread of its process that runs Python is idle, waits without a limit too,"
            " or watches a progress bar",
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
            "have the thread put its error into the queue, and raise it where it is taken out",
            "get(timeout=...), result(timeout=...) in a loop that looks whether the thread lives"
            " (thread.is_alive())",
        ),
        pids=tuple(each.pid for each in actors),
    )


CAUSE = Cause(NAME, find)
