"""The main thread waits for another thread to say something, and no other thread is there."""

from __future__ import annotations

from collections.abc import Iterator

from ...findings import Confidence, Finding
from ..locks import Wait, for_ever, others, wait_of
from ..scene import Scene, Strand
from ..torch_loader import ends
from ..waits import at_line
from .base import LIKELY, POSSIBLE, Shape

NAME = "thread-gone"
_BYSTANDERS = ("tqdm/",)  # whose threads watch, and answer nobody
_LOADERS = ("torch/utils/data/dataloader.py", "antifreeze/")


def find(scene: Scene) -> Iterator[Finding]:
    strand = scene.main.main
    if strand is None or scene.at_prompt or scene.main.stopped or not alone(scene, strand):
        return
    what, sure = _what(strand)
    if sure is POSSIBLE and not scene.workers:
        return  # a program that waits until it is told to end, as servers do
    rest = [each for each in scene.main.strands if each is not strand and each.frames]
    yield Finding(
        NAME,
        sure,
        f"{scene.main.label} waits for {what}, {at_line(strand)}, and nobody is left to answer: it"
        " has no other thread that could, and the wait has no limit (a thread that has failed"
        " ends without a word to who waits for it)",
        evidence=(
            f"{scene.main.label}: no CPU, at the same line in both looks: {strand.at}",
            f"its {len(rest)} other threads that run Python serve multiprocessing, or are idle"
            if rest
            else "it has no other thread that runs Python",
        ),
        get_out=(
            f"kill -INT {scene.main.pid}    (KeyboardInterrupt at that line: the script can save;"
            " what it does not save is lost)",
            "look for a traceback above in its output ('Exception in thread ...'): it says why the"
            " thread has ended",
        ),
        prevent=(
            "let a thread that fills a queue put its exception and its end into it (try/except/"
            "finally around all of it), and let the reader raise what it gets",
            "get(timeout=...), result(timeout=...) in a loop that looks whether the thread lives"
            " (thread.is_alive())",
        ),
        pids=(scene.main.pid,),
    )


def alone(scene: Scene, strand: Strand) -> bool:
    """Say that the main thread waits, without a limit, for a thread that is not there."""
    if wait_of(strand) not in (Wait.NOTICE, Wait.RESULT) or not for_ever(strand) or ends(strand):
        return False
    if any(each.file.startswith(_LOADERS) for each in strand.frames):
        return False
    rest = [each for each in others(scene.main, strand) if each.frames]
    return all(each.frames[0].file == "threading.py" and _watches(each) for each in rest)


def _watches(strand: Strand) -> bool:
    return any(each.file.startswith(_BYSTANDERS) for each in strand.frames)


def _what(strand: Strand) -> tuple[str, Confidence]:
    if strand.calls("get", "queue.py") or strand.in_native("SimpleQueue"):
        return "something to be put into a queue", LIKELY
    if wait_of(strand) is Wait.RESULT:
        return Wait.RESULT.value, LIKELY
    return "a notice (an event or a condition)", POSSIBLE  # which a signal may set too


SHAPE = Shape(
    name=NAME,
    title="The thread that should answer is gone",
    what=(
        "A prefetcher of the script's own iterates over the loader in a thread and puts batches"
        " into a queue. If that thread fails, Python prints its error and lets it end; the main"
        " thread waits at the queue for ever. The same holds for a result or an event that only"
        " this thread would have given. The loader is well: its workers wait for an order."
    ),
    tell=(
        "The main thread waits in `Queue.get`, `result` or `wait`, without a limit and at the same"
        " line in two looks, and the process has no other thread that runs Python, but those that"
        " serve multiprocessing or watch a progress bar. An event may be set by a signal too: it is"
        " no more than possible there."
    ),
    get_out=(
        "Interrupt it (`kill -INT`): the script can save. The traceback of the thread is somewhere"
        " above in the output."
    ),
    prevent=(
        "Have the thread hand its exception and its end to the reader through the queue, and give"
        " the wait a limit."
    ),
    find=find,
)
