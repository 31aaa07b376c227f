"""A process may open no more files."""

from __future__ import annotations

from collections.abc import Iterator

from ...findings import Finding
from ..analyse.threads_and_processes import Program, WatchedProcess
from ..analyse.waits import batch_lost, did_nothing, loop_waits
from .base import LIKELY, POSSIBLE, Cause

NAME = "descriptor-limit"
_NEAR_SHARE = 0.95
_NEAR = 4  # descriptors that are left: one tensor needs two


def find(program: Program) -> Iterator[Finding]:
    near = [each for each in (program.main, *program.living) if _near(each)]
    if not near or not loop_waits(program) or not did_nothing(program.loop):
        return
    lost = batch_lost(program)
    if not lost and not all(did_nothing(each.main) for each in near):
        return
    names = " and ".join(each.label for each in near[:3])
    first = near[0]
    limit = first.now.most_files
    in_worker = any(each is not program.main for each in near)
    yield Finding(
        NAME,
        LIKELY if lost and in_worker else POSSIBLE,
        f"{names} {'has' if len(near) == 1 else 'have'} as many files open as"
        f" {'it' if len(near) == 1 else 'they'} may ({first.now.open_files} of {limit}): a"
        " batch could not be handed over and was dropped without an error, and the loop waits for"
        f" it in {program.waits_for_batch}",
        evidence=(
            *(
                f"{each.label}: {each.now.open_files} of {each.now.most_files} files open"
                + _mostly(each)
                for each in near[:4]
            ),
            *(["all workers wait for an order: nobody is working on the batch"] if lost else []),
        ),
        get_out=(
            f"prlimit --pid {first.pid} --nofile=65536    (nothing is lost by it, but a batch that"
            " was dropped does not come back)",
            f"kill -INT {program.main.pid}    and start again from the last checkpoint",
        ),
        prevent=(
            "ulimit -n 65536 before the start",
            "torch.multiprocessing.set_sharing_strategy('file_system'), at the top of the script:"
            " no descriptor per tensor",
            "fewer tensors in a batch: stack them. antifreeze's loader needs one descriptor a"
            " worker",
        ),
        pids=(program.main.pid, *(each.pid for each in near if each is not program.main)),
    )


def _near(process: WatchedProcess) -> bool:
    limit, count = process.now.most_files, process.now.open_files
    return limit > 0 and count > 0 and (limit - count <= _NEAR or count >= _NEAR_SHARE * limit)


def _mostly(process: WatchedProcess) -> str:
    """Return what most of them are."""
    kinds = {
        "tensors in shared memory": ("/dev/shm/",),
        "pipes": ("pipe:",),
        "connections": ("tcp",),
        "sockets": ("unix", "socket:"),
    }
    listed = process.now.descriptors
    for words, start in kinds.items():
        if sum(each.target.startswith(start) for each in listed) > len(listed) / 2:
            return f", most of them {words}"
    return ""


CAUSE = Cause(NAME, find)
