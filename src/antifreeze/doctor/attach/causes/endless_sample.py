"""A worker computes, and does not come to the end of a batch."""

from __future__ import annotations

from collections.abc import Iterator

from ...findings import Finding
from ..analyse.lock_waits import Wait, wait_of
from ..analyse.progress import gets_on, in_native_code, watched_s
from ..analyse.threads_and_processes import BUSY_SHARE, Actor, Scene, Strand
from ..analyse.waits import at_line, in_sample, loads_itself, loop_waits
from ..analyse.workers_by_loader import and_the_loop_waits
from ..facts import Frame
from .base import POSSIBLE, Cause, are, kill_worker, people

NAME = "endless-sample"
_LEAST_SHARE = 0.05  # of a core: on a crowded machine one that computes gets no more
_LEAST_CPU_S = 2.0  # that a worker has used in its life: one that has just begun is only slow
_FIRST_CPU_S = 10.0  # for its first batch: the time to load and to warm up is in it
_FIRST_ALONE_CPU_S = 4.0  # the same, where others do something else, and do not wait for it
_EXPRESSIONS = ("sre_", "SRE(", "pattern_match", "pattern_search", "pattern_f", "pattern_sub")
_NO_BATCH = 200  # bytes: one that has sent less has never sent a batch


def find(scene: Scene) -> Iterator[Finding]:
    if loads_itself(scene):
        yield from _in_the_loop(scene)
    if not loop_waits(scene):
        return
    found = [
        (worker, strand)
        for worker in scene.living
        if (strand := worker.main) is not None
        and in_sample(scene, worker)
        and _computes(strand)
        and not in_native_code(strand)  # that may be one long operation: see slow-samples
        and not gets_on(scene, worker)
        and _same_function(strand) is not None
    ]
    if not found or not _stands_out(scene, [worker for worker, _ in found]):
        return
    workers = [worker for worker, _ in found]
    _, first = found[0]
    yield Finding(
        NAME,
        POSSIBLE,
        f"{people(workers)} {are(workers, 'computes', 'compute')} without an end in sight,"
        f" {at_line(first)}: it looks like an endless loop, or like a very slow sample"
        f"{and_the_loop_waits(scene, workers)}",
        evidence=(
            *(_seen(scene, worker, strand) for worker, strand in found[:4]),
            f"the loop waits for a batch in {scene.waits_for_batch}"
            if scene.waits_for_batch is not None
            else "the loop waits for a batch",
        ),
        get_out=(
            f"look again, in a minute: antifreeze attach {scene.main.pid}    (if the same line is"
            " named, it is endless)",
            kill_worker(workers),
        ),
        prevent=(
            "bound loops over data (`while` that waits for something in the sample to change), and"
            " regular expressions on text that nobody has checked",
            "antifreeze's loader names the sample that does not return, and goes on without it"
            " (sample_timeout)",
        ),
        pids=tuple(worker.pid for worker in workers),
    )


def _in_the_loop(scene: Scene) -> Iterator[Finding]:
    """Name a regular expression that the main process is in, all the time between two looks. Other
    code may be at the same line since every sample comes to it."""
    strand = scene.main.main
    if strand is None or strand.before is None or not _computes(strand):
        return
    then = tuple(each for each in strand.before.frames if not each.native)
    if then != strand.frames or strand.in_native(*_EXPRESSIONS) is None:
        return
    yield Finding(
        NAME,
        POSSIBLE,
        f"{scene.main.label} is in a regular expression in both looks, {at_line(strand)}: it tries"
        " all ways to match a sample's text, which may take for ever",
        evidence=(
            f"{scene.main.label}: {strand.share:.0%} of a core, in {strand.native[0]}, at the same"
            " line in both looks",
        ),
        get_out=(
            f"look again, in a minute: antifreeze attach {scene.main.pid}    (if the same line is"
            " named, it is endless)",
            f"kill -INT {scene.main.pid}    (a KeyboardInterrupt at this line: what the script does"
            " not save then is lost)",
        ),
        prevent=(
            "no repetition within a repetition, such as (\\w+\\s?)+; atomic groups (?>...) or"
            " possessive quantifiers, from Python 3.11 on; a limit on a text's length",
        ),
        pids=(scene.main.pid,),
    )


def _stands_out(scene: Scene, found: list[Actor]) -> bool:
    """Say that it is not just what all of them do: where every worker computes, and each has sent
    batches before, samples are slow."""
    others = [each for each in scene.living if each not in found]
    if len(scene.living) == 1 or any(scene.idle(each) or each.stopped for each in others):
        return True
    take_turns = any(each.main and wait_of(each.main) is Wait.SEMAPHORE for each in others)
    enough = _FIRST_ALONE_CPU_S if others and not take_turns else _FIRST_CPU_S
    return any(
        each.process.written_bytes < _NO_BATCH and each.process.cpu_s >= enough for each in found
    )


def _computes(strand: Strand) -> bool:
    """Say that it has used the CPU all the time, or all that it was given of it."""
    if strand.before is None:
        return False
    never_slept = strand.before.gave_way == strand.thread.gave_way
    used = strand.thread.cpu_s >= _LEAST_CPU_S
    return used and (strand.share > BUSY_SHARE or (never_slept and strand.share > _LEAST_SHARE))


def _same_function(strand: Strand) -> Frame | None:
    """Give the innermost function of the dataset's that both looks have in common."""
    before = strand.before.frames if strand.before is not None else ()
    then = [each for each in before if not each.native]
    common = None
    for was, now in zip(reversed(then), reversed(strand.frames), strict=False):
        if (was.name, was.file) != (now.name, now.file):
            break
        common = now
        if was.line != now.line:
            break
    if common is None or common.file.startswith(("torch/utils/data/", "multiprocessing/")):
        return None
    return common


def _seen(scene: Scene, worker: Actor, strand: Strand) -> str:
    common = _same_function(strand)
    return (
        f"{worker.label}: {strand.share:.0%} of a core, in {common} in both looks; it has read"
        f" nothing and sent nothing in {watched_s(scene):.0f} s"
    )


CAUSE = Cause(NAME, find)
