"""A worker computes, and does not come to the end of a batch."""

from __future__ import annotations

from collections.abc import Iterator

from ...findings import Finding
from ..analyse.lock_waits import Wait, wait_of
from ..analyse.progress import in_native_code, makes_progress, watched_s
from ..analyse.threads_and_processes import BUSY_SHARE, Program, WatchedProcess, WatchedThread
from ..analyse.waits import at_line, in_sample, loads_itself, loop_waits
from ..analyse.workers_by_loader import and_the_loop_waits
from ..facts import Frame
from .base import POSSIBLE, Cause, interrupt_at_line, kill_worker, names_of, plural

NAME = "endless-sample"
_LEAST_SHARE = 0.05  # of a core: on a crowded machine one that computes gets no more
_LEAST_CPU_S = 2.0  # that a worker has used in its life: one that has just begun is only slow
_FIRST_CPU_S = 10.0  # for its first batch: the time to load and to warm up is in it
_FIRST_ALONE_CPU_S = 4.0  # the same, where others do something else, and do not wait for it
_EXPRESSIONS = ("sre_", "SRE(", "pattern_match", "pattern_search", "pattern_f", "pattern_sub")
_NO_BATCH = 200  # bytes: one that has sent less has never sent a batch


def find(program: Program) -> Iterator[Finding]:
    if loads_itself(program):
        yield from _in_the_loop(program)
    if not loop_waits(program):
        return
    found = [
        (worker, thread)
        for worker in program.living
        if (thread := worker.main) is not None
        and in_sample(program, worker)
        and _computes(thread)
        and not in_native_code(thread)  # that may be one long operation: see slow-samples
        and not makes_progress(program, worker)
        and _same_function(thread) is not None
    ]
    if not found or not _stands_out(program, [worker for worker, _ in found]):
        return
    workers = [worker for worker, _ in found]
    _, first = found[0]
    yield Finding(
        NAME,
        POSSIBLE,
        f"{names_of(workers)} {plural(workers, 'computes', 'compute')} without an end in sight,"
        f" {at_line(first)}: it looks like an endless loop, or like a very slow sample"
        f"{and_the_loop_waits(program, workers)}",
        evidence=(
            *(_seen(program, worker, thread) for worker, thread in found[:4]),
            f"the loop waits for a batch in {program.waits_for_batch}"
            if program.waits_for_batch is not None
            else "the loop waits for a batch",
        ),
        get_out=(
            f"look again, in a minute: antifreeze attach {program.main.pid}    (if the same line is"
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


def _in_the_loop(program: Program) -> Iterator[Finding]:
    """Name a regular expression that the main process is in, all the time between two looks. Other
    code may be at the same line since every sample comes to it."""
    thread = program.main.main
    if thread is None or thread.before is None or not _computes(thread):
        return
    if not thread.at_same_lines or thread.in_native(*_EXPRESSIONS) is None:
        return
    yield Finding(
        NAME,
        POSSIBLE,
        f"{program.main.label} is in a regular expression in both looks, {at_line(thread)}: it"
        " tries all ways to match a sample's text, which may take for ever",
        evidence=(
            f"{program.main.label}: {thread.share:.0%} of a core, in {thread.native[0]}, at the"
            " same line in both looks",
        ),
        get_out=(
            f"look again, in a minute: antifreeze attach {program.main.pid}    (if the same line is"
            " named, it is endless)",
            interrupt_at_line(program.main),
        ),
        prevent=(
            "no repetition within a repetition, such as (\\w+\\s?)+; atomic groups (?>...) or"
            " possessive quantifiers, from Python 3.11 on; a limit on a text's length",
        ),
        pids=(program.main.pid,),
    )


def _stands_out(program: Program, found: list[WatchedProcess]) -> bool:
    """Whether it is not just what all of them do: where every worker computes, and each has sent
    batches before, samples are slow."""
    others = [each for each in program.living if each not in found]
    if len(program.living) == 1 or any(program.idle(each) or each.stopped for each in others):
        return True
    take_turns = any(each.main and wait_of(each.main) is Wait.SEMAPHORE for each in others)
    enough = _FIRST_ALONE_CPU_S if others and not take_turns else _FIRST_CPU_S
    return any(each.now.written_bytes < _NO_BATCH and each.now.cpu_s >= enough for each in found)


def _computes(thread: WatchedThread) -> bool:
    """Whether it has used the CPU all the time, or all that it was given of it."""
    if thread.before is None:
        return False
    never_slept = thread.before.gave_way == thread.now.gave_way
    used = thread.now.cpu_s >= _LEAST_CPU_S
    return used and (thread.share > BUSY_SHARE or (never_slept and thread.share > _LEAST_SHARE))


def _same_function(thread: WatchedThread) -> Frame | None:
    """Return the innermost function of the dataset's that both looks have in common."""
    common = None
    for was, now in zip(reversed(thread.frames_before), reversed(thread.frames), strict=False):
        if (was.name, was.file) != (now.name, now.file):
            break
        common = now
        if was.line != now.line:
            break
    if common is None or common.file.startswith(("torch/utils/data/", "multiprocessing/")):
        return None
    return common


def _seen(program: Program, worker: WatchedProcess, thread: WatchedThread) -> str:
    common = _same_function(thread)
    return (
        f"{worker.label}: {thread.share:.0%} of a core, in {common} in both looks; it has read"
        f" nothing and sent nothing in {watched_s(program):.0f} s"
    )


CAUSE = Cause(NAME, find)
