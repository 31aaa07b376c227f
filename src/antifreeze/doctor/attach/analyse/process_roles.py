"""Who is who among the processes of a program. Pure."""

from __future__ import annotations

from enum import Enum
from pathlib import PurePath

from ...._transport import own_frames
from ..facts import Frame, Process
from .library_files import FORK_SERVER, LOADER, PROCESS, SPAWN, SPAWN_OF_TORCH

WORKER = "pt_data_worker"  # what torch calls its own
LAUNCHERS = (
    *("torchrun", "torch.distributed.run", "torch.distributed.launch", "accelerate"),
    *("lightning", "deepspeed", "horovodrun"),
)
# How torch and its libraries call the threads of a process group.
GROUP_THREADS = ("gloo_tcp", "pt_gloo", "pt_nccl")


class Role(Enum):
    """What a process is to the program."""

    MAIN = "main"  # the script, or one rank of it
    WORKER = "worker"  # of torch's loader
    OUR_WORKER = "antifreeze's worker"
    OUR_CLEAN_PROCESS = "antifreeze's clean process"
    LAUNCHER = "launcher"
    HELPER = "helper"  # of multiprocessing: its tracker, its fork server
    CHILD = "child"  # a program that one of them has started


def role_of(process: Process, now: dict[int, Process]) -> Role:
    command = process.command
    if process.name.startswith(own_frames.WORKER_PROCESS.name):
        return Role.OUR_WORKER
    if process.name.startswith(own_frames.PROCESSES):
        return Role.OUR_CLEAN_PROCESS
    if process.name == WORKER:
        return Role.WORKER
    joined = " ".join(command)
    if is_starting(process) and _feeds_workers(process, now):
        return Role.WORKER
    if "multiprocessing.resource_tracker" in joined or "multiprocessing.forkserver" in joined:
        return Role.HELPER
    parent = now.get(process.parent)
    frames = [frame for thread in process.threads for frame in thread.frames]
    if any(f.name == "_worker_loop" and f.file.startswith("torch/") for f in frames):
        return Role.WORKER
    if parent is not None and _forked_by_loader(frames):
        return Role.WORKER
    below = [each for each in now.values() if each.parent == process.pid]
    if parent is None or is_launcher(parent.command):
        starts_ranks = any(_is_spawned_rank(each) for each in below)
        launches = (
            starts_ranks or (is_launcher(command) and bool(below)) or _launches(process, below)
        )
        return Role.LAUNCHER if launches else Role.MAIN
    if _is_spawned_rank(process) or _has_a_rank_of_its_own(process, parent):
        return Role.MAIN
    if not is_python(command):
        return Role.CHILD
    if "multiprocessing.spawn" in joined or command == parent.command:
        named = any(each.name == WORKER for each in now.values())
        return Role.CHILD if named or not _may_be_worker(process, parent) else Role.WORKER
    return Role.CHILD


def is_python(command: tuple[str, ...]) -> bool:
    """Whether a process runs Python, by its command."""
    first = PurePath(command[0]).name if command else ""
    if first.startswith(("python", "pypy")):
        return True
    # A script with its interpreter in the first line is shown with that; others name themselves.
    named = ("antifreeze", own_frames.PROCESSES, "ray::")
    return first in {"ray::", "torchrun"} or first.startswith(named)


def is_launcher(command: tuple[str, ...]) -> bool:
    """Whether a process starts the ranks of a distributed program."""
    return any(PurePath(part).name in LAUNCHERS or part in LAUNCHERS for part in command[:4])


def _forked_by_loader(frames: list[Frame]) -> bool:
    """Whether it is a copy of a process that was starting torch's workers: one of those, which has
    not come to its own code yet."""
    begins = [at for at, each in enumerate(frames) if each.name.endswith("_bootstrap")]
    after = frames[begins[0] :] if begins else []
    return any(f.file == LOADER and f.name.endswith("__init__") for f in after)


def _may_be_worker(process: Process, parent: Process) -> bool:
    """Where torch does not name its workers (it does since 2.7), and without stacks: one that has
    ended, or that is forked, is most often a worker."""
    if any(thread.frames for thread in process.threads):
        return False
    return process.state in "ZX" or not any(thread.frames for thread in parent.threads)


def is_starting(process: Process) -> bool:
    """Whether multiprocessing has started a process anew, which has not come to its own code: it
    imports the script and what that imports, which takes seconds."""
    names = {(f.name, f.file) for thread in process.threads for f in thread.frames}
    begun = ("BaseProcess._bootstrap", PROCESS) in names
    anew = {
        ("spawn_main", SPAWN),
        ("_serve_one", FORK_SERVER),
    }
    return bool(anew & names) and not begun


def _feeds_workers(process: Process, now: dict[int, Process]) -> bool:
    """Whether one of those above it has a loader with workers, or makes one."""
    above = now.get(process.parent)
    if above is not None and "multiprocessing.forkserver" in " ".join(above.command):
        above = now.get(above.parent)
    frames = [f for thread in above.threads for f in thread.frames] if above is not None else []
    return any(f.name in ("Queue._feed", "_MultiProcessingDataLoaderIter.__init__") for f in frames)


def _is_spawned_rank(process: Process) -> bool:
    """Whether a process is a rank that a script has started itself, with multiprocessing: torch's
    `spawn`, or one that has a process group, or workers of its own, beside others like it."""
    frames = [frame for thread in process.threads for frame in thread.frames]
    if any(f.name == "_worker_loop" for f in frames) or process.name == WORKER:
        return False
    if any(f.name == "_wrap" and f.file == SPAWN_OF_TORCH for f in frames):
        return True
    started = any(f.file == PROCESS for f in frames)
    return started and has_group(process)


def _has_a_rank_of_its_own(process: Process, parent: Process) -> bool:
    """Whether a script was started once more, as another rank, by the first one."""
    if not is_python(process.command) or process.name == WORKER:
        return False
    names = [name for name in ("RANK", "LOCAL_RANK") if name in process.settings]
    return any(process.settings[name] != parent.settings.get(name) for name in names)


def _launches(process: Process, below: list[Process]) -> bool:
    """Whether a script has started all ranks as programs of their own, and is none itself: it has
    no number and no process group. One that is rank 0 starts the others only."""
    if set(process.settings) & {"RANK", "LOCAL_RANK"} or has_group(process):
        return False
    ranks = [each for each in below if _has_a_rank_of_its_own(each, process)]
    local = {each.settings["LOCAL_RANK"] for each in ranks if "LOCAL_RANK" in each.settings}
    return bool(ranks) and (not local or "0" in local)


def has_group(process: Process) -> bool:
    """Whether a process belongs to a process group of torch.distributed: it has its threads."""
    return any(thread.name.startswith(GROUP_THREADS) for thread in process.threads)


def is_rank(process: Process) -> bool:
    """Whether a process takes part in what the ranks do together, as far as can be seen."""
    numbered = bool(set(process.settings) & {"RANK", "LOCAL_RANK"})
    return numbered or has_group(process) or _is_spawned_rank(process)


def number_of(process: Process, now: dict[int, Process], roles: dict[int, Role]) -> int:
    if roles[process.pid] is Role.OUR_WORKER and process.name.rpartition("_")[2].isdigit():
        return int(process.name.rpartition("_")[2])
    if roles[process.pid] is Role.MAIN:
        above = now.get(process.parent)
        rank = process.settings.get("RANK", "")
        if rank.isdigit() and (above is None or above.settings.get("RANK") != rank):
            return int(rank)
        if above is None or roles[above.pid] is not Role.LAUNCHER:
            local = process.settings.get("LOCAL_RANK", "")
            return int(local) if local.isdigit() else 0
    alike = [
        each
        for each in now.values()
        if roles[each.pid] is roles[process.pid] and each.parent == process.parent
    ]
    ordered = sorted(alike, key=lambda each: (each.started_at, each.pid))
    return ordered.index(process)
