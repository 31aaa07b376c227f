"""A batch could not be sent: the queue's thread dropped it, and the loop waits for it for ever."""

from __future__ import annotations

from collections.abc import Iterator

from ...findings import Finding
from ..analyse import torch_loader as torchs
from ..analyse.threads_and_processes import Actor, Scene
from .base import LIKELY, Cause, kill_worker, where

NAME = "batch-lost"
_FEW = 16  # descriptors: who has fewer left cannot share a batch
_LITTLE = 0.05  # of /dev/shm


def find(scene: Scene) -> Iterator[Finding]:
    loop, reader = torchs.loop(scene), torchs.reader(scene)
    workers = torchs.workers(scene)
    if loop is None or reader is None or not workers or scene.ours:
        return
    if not torchs.feeders(scene.main):
        return  # it has asked for nothing yet
    if not torchs.awaits_message(reader) or not torchs.nothing_under_way(scene):
        return
    if torchs.killed(scene) or torchs.buried(scene) or scene.missing:
        return  # then it went with its worker
    sent = [each for each in workers if torchs.feeders(each)]
    yield (_batch if sent else _indices)(scene, where(loop), workers)


def _batch(scene: Scene, place: str, workers: list[Actor]) -> Finding:
    log = _log(workers[0])
    return Finding(
        NAME,
        LIKELY,
        f"the loop waits for a batch that was lost, {place}: no worker has anything to do any"
        " more, and one of them could not send what it had made (it cannot be pickled or shared)",
        evidence=(
            *_seen(scene, workers),
            *_shortage(scene, workers),
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
        pids=(scene.main.pid, *(each.pid for each in workers)),
        general=True,
    )


def _indices(scene: Scene, place: str, workers: list[Actor]) -> Finding:
    log = _log(scene.main)
    return Finding(
        NAME,
        LIKELY,
        f"the loop waits for a batch, {place}, and the workers for something to do: the indices"
        " that the sampler gave were lost on their way to them (they cannot be pickled)",
        evidence=(
            *_seen(scene, workers),
            "no worker has ever sent anything: none has a thread that sends",
            f"the reason is in what the program has written to {log}: a traceback that ends in"
            " `_feed` of multiprocessing/queues.py",
        ),
        get_out=(kill_worker(workers[:1]),),
        prevent=(
            "have the sampler give plain numbers, strings or tuples of them: no lambda, generator"
            " or open file",
        ),
        pids=(scene.main.pid, *(each.pid for each in workers)),
    )


def _seen(scene: Scene, workers: list[Actor]) -> list[str]:
    sent = sum(_written(each) for each in workers)
    return [
        f"{len(workers)} workers of {len(workers)} wait for indices in both looks, without CPU",
        "no thread sends a batch or indices; the pipe of batches is empty",
        f"the workers have written {sent} bytes in {scene.seconds:.1f} s",
    ]


def _written(actor: Actor) -> int:
    return actor.process.written_bytes - (actor.before or actor.process).written_bytes


def _shortage(scene: Scene, workers: list[Actor]) -> list[str]:
    """Say what may have kept a batch from being shared."""
    found = []
    machine = scene.machine
    if machine.shm and machine.shm_free < machine.shm * _LITTLE:
        found.append(
            f"/dev/shm is full: {machine.shm_free >> 20} MB free of {machine.shm >> 20} MB"
        )
    if machine.temporary and not machine.temporary_there:
        found.append(f"the folder for temporary files is not there: {machine.temporary}")
    for each in (*workers, scene.main):
        process = each.process
        if process.most_files and process.most_files - process.open_files < _FEW:
            found.append(
                f"{each.label} has {process.open_files} files open, of {process.most_files} that"
                " it may have"
            )
    return found


def _log(actor: Actor) -> str:
    """Say where a process writes its errors to."""
    target = next((d.target for d in actor.process.descriptors if d.number == 2), "")
    return target if target.startswith("/") and target != "/dev/null" else "its terminal or log"


CAUSE = Cause(NAME, find)
