"""The container is at its limit of memory, and the kernel takes pages away all the time."""

from __future__ import annotations

from collections.abc import Iterator

from ...findings import Finding
from ..analyse.threads_and_processes import Program
from ..analyse.waits import megabytes, rate
from .base import LIKELY, Cause

NAME = "container-memory-limit"
_NEAR = 0.97  # of the limit
# A container whose cache of files fills it meets its limit too, and is well: what hurts is that
# pages that are in use are taken away, and have to be fetched again.
_FAULTS_S = 100.0
_HELD_IN = ("mem_cgroup_handle_over_high", "mem_cgroup_oom", "shrink_", "try_charge", "reclaim")


def find(program: Program) -> Iterator[Finding]:
    group, then = program.machine.group, program.machine_before.group
    if group.memory_limit <= 0 or group.memory_used < _NEAR * group.memory_limit:
        return
    met = group.reclaims - then.reclaims
    killed = group.kills - then.kills
    faults = rate(program, "major_faults")
    held = [
        each
        for each in program.all
        if any(part in s.now.waits_in for s in each.threads for part in _HELD_IN)
    ]
    if not killed and not held and not (met > 0 and faults >= _FAULTS_S):
        return
    largest = sorted(program.all, key=lambda each: -each.now.memory.own)[:3]
    yield Finding(
        NAME,
        LIKELY,
        f"the container is at its limit of memory ({megabytes(group.memory_used)} of"
        f" {megabytes(group.memory_limit)}): the kernel takes pages away that are in use"
        + (", and has just killed a process" if killed else "")
        + ", and everything crawls",
        evidence=(
            f"the limit was met {met} times in {program.seconds:.1f} s; {faults:.0f} pages/s had to"
            " be fetched again from disk",
            *([f"killed for want of memory so far: {group.kills}"] if group.kills else []),
            *(f"{each.label}: {megabytes(each.now.memory.own)}" for each in largest),
        ),
        get_out=(
            "raise the limit: docker update --memory 32g --memory-swap 32g CONTAINER    (nothing is"
            " lost, and it goes on)",
        ),
        prevent=(
            "fewer workers, a smaller prefetch_factor, data in arrays or memory maps instead of"
            " lists of Python objects; /dev/shm counts as memory of the container",
        ),
        pids=tuple(each.pid for each in (program.main, *program.living)),
    )


CAUSE = Cause(NAME, find)
