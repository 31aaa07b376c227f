"""A batch could not be sent: the queue's thread dropped it, and the loop waits for it for ever."""

from __future__ import annotations

from collections.abc import Iterator

from ...findings import Finding
from ..analyse import torch_loader as torchs
from ..analyse.threads_and_processes import Program, WatchedProcess
from .base import LIKELY, Cause, kill_worker, where

NAME = "batch-lost"
_FEW = 16  # descriptors: who has fewer left cannot share a batch
_LITTLE = 0.05  # of /dev/shm


def find(program: Program) -> Iterator[Finding]:
    loop, reader = torchs.loop(program), torchs.reader(program)
    workers = torchs.workers(program)
    if loop is None or reader is None or not workers or program.ours:
        return
    if not torchs.feeders(program.main):
        return  # it has asked for nothing yet
    if not torchs.awaits_message(reader) or not torchs.nothing_under_way(program):
        return
    if torchs.killed_workers(program) or torchs.reaped_workers(program) or program.missing:
        return  # then it went with its worker
    sent = [each for each in workers if torchs.feeders(each)]
    yield (_batch if sent else _indices)(program, where(loop), workers)


def _batch(program: Program, place: str, workers: list[WatchedProcess]) -> Finding:
    log = _log(workers[0])
    return Finding(
        NAME,
        LIKELY,
        f"the loop waits for a batch that was lost, {place}: no worker has anything to do any"
        " more, and one of them could not send what it had made (it cannot be pickled or shared)",
        evidence=(
            *_seen(program, workers),
            *_shortage(program, workers),
            f"the reason is in what the program has written to {log}: a traceback that ends in"
            " `_feed` of multiprocessing/queues.py",
        ),
        get_out=(
            f"grep -B3 -A30 Traceback {log}    (the reason; nothing is lost by looking)"
            if log.startswith("/")
            else f"look for a traceback in {log}: it names what could not be sent",
            kill_worker(workers[:1]),
        ),
        prevent=(
            "return from `__getitem__` and `collate_fn` only what can be pickled: no lambda,"
            " generator, open file or lock; tensors with .detach(); errors of classes that are"
            " defined at the top of a module",
            "where /dev/shm or the limit of open files is small: more of it (docker run"
            " --shm-size=8g, ulimit -n 65535), or"
            " torch.multiprocessing.set_sharing_strategy('file_system')",
            "if the traceback is of the main process: have the sampler give plain numbers",
            "antifreeze's loader raises an error at the loop instead, with the sample",
        ),
        pids=(program.main.pid, *(each.pid for each in workers)),
        general=True,
    )


def _indices(program: Program, place: str, workers: list[WatchedProcess]) -> Finding:
    log = _log(program.main)
    return Finding(
        NAME,
        LIKELY,
        f"the loop waits for a batch, {place}, and the workers for something to do: the indices"
        " that the sampler gave were lost on their way to them (they cannot be pickled)",
        evidence=(
            *_seen(program, workers),
            "no worker has ever sent anything: none has a thread that sends",
            f"the reason is in what the program has written to {log}: a traceback that ends in"
            " `_feed` of multiprocessing/queues.py",
        ),
        get_out=(kill_worker(workers[:1]),),
        prevent=(
            "have the sampler give plain numbers, strings or tuples of them: no lambda, generator"
            " or open file",
        ),
        pids=(program.main.pid, *(each.pid for each in workers)),
    )


def _seen(program: Program, workers: list[WatchedProcess]) -> list[str]:
    sent = sum(_written(each) for each in workers)
    return [
        f"{len(workers)} workers of {len(workers)} wait for indices in both looks, without CPU",
        "no thread sends a batch or indices; the pipe of batches is empty",
        f"the workers have written {sent} bytes in {program.seconds:.1f} s",
    ]


def _written(process: WatchedProcess) -> int:
    return process.now.written_bytes - (process.before or process.now).written_bytes


def _shortage(program: Program, workers: list[WatchedProcess]) -> list[str]:
    """Return what may have kept a batch from being shared."""
    found = []
    machine = program.machine
    if machine.shm and machine.shm_free < machine.shm * _LITTLE:
        found.append(
            f"/dev/shm is full: {machine.shm_free >> 20} MB free of {machine.shm >> 20} MB"
        )
    if machine.temporary and not machine.temporary_there:
        found.append(f"the folder for temporary files is not there: {machine.temporary}")
    for each in (*workers, program.main):
        process = each.now
        if process.most_files and process.most_files - process.open_files < _FEW:
            found.append(
                f"{each.label} has {process.open_files} files open, of {process.most_files} that"
                " it may have"
            )
    return found


def _log(process: WatchedProcess) -> str:
    """Return where a process writes its errors to."""
    target = next((d.target for d in process.now.descriptors if d.number == 2), "")
    return target if target.startswith("/") and target != "/dev/null" else "its terminal or log"


CAUSE = Cause(NAME, find)
