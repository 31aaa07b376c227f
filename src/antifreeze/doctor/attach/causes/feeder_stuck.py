"""A worker's thread that sends batches does not get on: the pipe is full, or it is in the batch's
own code."""

from __future__ import annotations

from collections.abc import Iterator

from ...findings import Finding
from ..analyse import torch_loader as torchs
from ..analyse.threads_and_processes import Program, WatchedProcess, WatchedThread
from .base import LIKELY, POSSIBLE, Cause, kill_worker, names_of, plural, where

NAME = "feeder-stuck"
# Where Python waits for another thread or process; a step of training waits elsewhere.
_WAITS = ("threading.py", "queue.py", "subprocess.py", "selectors.py")
_PICKLING = "multiprocessing/reduction.py"
_WORKS = 0.1  # of a core; threads that only look at a clock use less


def find(program: Program) -> Iterator[Finding]:
    main = program.main.main
    if main is None or program.ours:
        return
    if torchs.loop(program) is not None:
        yield from _in_pickling(program)
        return
    if torchs.ends_program(main):
        return
    full = [
        each
        for each in torchs.workers(program)
        if any(torchs.writes_in_vain(feeder) for feeder in torchs.feeders(each))
    ]
    if not full or not _waits_for_others(main) or _anybody_moves(program):
        return
    for_workers = _waits_for_workers(program, main)
    yield Finding(
        NAME,
        LIKELY if for_workers else POSSIBLE,
        f"the main process waits {where(main)}, and does not take the batch that"
        f" {names_of(full)} {plural(full, 'has', 'have')} ready: it does not fit into the pipe, so"
        " that nobody gets on",
        evidence=(
            f"{names_of(full)}: the thread that sends is in a write into a full pipe, in both"
            " looks",
            "no thread of the main process reads from it",
            *(["what the main process reads from, only its workers could write to"] * for_workers),
            f"nobody has used any CPU in {program.seconds:.1f} s",
            *(
                []
                if for_workers
                else ["it may be that the main process only waits long: look again with --watch"]
            ),
        ),
        get_out=(
            f"kill -INT {program.main.pid}    (KeyboardInterrupt where it waits: the script can"
            " save; what it does not save is lost)",
        ),
        prevent=(
            "take batches while you wait for a worker: do not wait for what it says by other means"
            " (a queue, an event, a lock) before its batches are taken",
            "tensors go by shared memory and leave the pipe free; large bytes, lists and numpy"
            " arrays go through it",
        ),
        pids=(program.main.pid, *(each.pid for each in full)),
    )


def _in_pickling(program: Program) -> Iterator[Finding]:
    """Find batches whose own code does not come back while they are made ready to be sent."""
    stuck = [
        (worker, feeder)
        for worker in torchs.workers(program)
        for feeder in torchs.feeders(worker)
        if feeder.calls("dumps", _PICKLING) and feeder.stuck and feeder.own_line
    ]
    if not stuck:
        return
    workers = [worker for worker, _ in stuck]
    _, first = stuck[0]
    yield Finding(
        NAME,
        LIKELY,
        f"the thread of {names_of(workers)} that sends batches does not get on: it pickles one,"
        f" {where(first)}, and that code does not come back; the loop waits for the batch, in"
        f" {program.waits_for_batch}",
        evidence=(
            *(
                f"{worker.label}: thread {feeder.now.name!r} is {where(feeder)} in both looks,"
                " without CPU"
                for worker, feeder in stuck[:4]
            ),
            "it is in the middle of `dumps`, called by `_feed` of multiprocessing/queues.py",
        ),
        get_out=(kill_worker(workers),),
        prevent=(
            "`__reduce__` and `__getstate__` of what is in a batch run in a thread of the worker:"
            " they must not wait for locks or for anything else",
            "return plain tensors, numbers and containers of them",
        ),
        pids=tuple(each.pid for each in workers),
    )


def _waits_for_others(main: WatchedThread) -> bool:
    at = main.at
    if at is None or not torchs.waits_as_before(main):
        return False
    return at.file in _WAITS or at.file.startswith(("multiprocessing/", "concurrent/"))


def _anybody_moves(program: Program) -> bool:
    """Whether somebody does something that the main process may be waiting for."""
    return any(
        process.share > _WORKS or process.main is None or not torchs.waits_as_before(process.main)
        for process in program.all
        if not process.dead
    )


def _waits_for_workers(program: Program, main: WatchedThread) -> bool:
    pipe = main.descriptor()
    if not pipe.startswith("pipe:"):
        return False
    writers = {each.pid for each in program.all if _may_write(each, pipe)} - {program.main.pid}
    return bool(writers) and writers <= {each.pid for each in torchs.workers(program)}


def _may_write(process: WatchedProcess, pipe: str) -> bool:
    return any(each.target == pipe and each.flags & 3 for each in process.now.descriptors)


CAUSE = Cause(NAME, find)
