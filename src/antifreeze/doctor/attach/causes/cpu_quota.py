"""The container's share of the CPU is used up, and the program is held back."""

from __future__ import annotations

from collections.abc import Iterator

from ...findings import Finding
from ..analyse.threads_and_processes import IDLE_SHARE, Program
from .base import LIKELY, Cause

NAME = "cpu-quota"
_PERIODS_S = 10.0  # there are ten in a second, by default
_HELD = 0.5  # of them


def find(program: Program) -> Iterator[Finding]:
    group, then = program.machine.group, program.machine_before.group
    if program.seconds <= 0 or group.quota_cores <= 0:
        return
    held = (group.throttled - then.throttled) / (program.seconds * _PERIODS_S)
    if held < _HELD:
        return
    working = [each for each in (program.main, *program.living) if each.share > IDLE_SHARE / 2]
    runnable = sum(
        thread.now.state == "R"
        for each in (program.main, *program.living)
        for thread in each.threads
    )
    if not working:
        return
    used = sum(each.share for each in program.all)
    yield Finding(
        NAME,
        LIKELY,
        f"the container may use {group.quota_cores:.1f} cores and wants more: it was held back in"
        f" {min(held, 1):.0%} of the time slices, and {len(working)} processes share what is left:"
        " it crawls, and is not stuck",
        evidence=(
            f"quota: {group.quota_cores:.1f} cores of the machine's {program.machine.cores}; used"
            f" by this program: {used:.1f}",
            f"held back {group.throttled - then.throttled} times in {program.seconds:.1f} s, for"
            f" {group.throttled_s - then.throttled_s:.1f} s in all",
            f"threads that want to run: {runnable}",
        ),
        get_out=(
            "raise the quota: docker update --cpus 8 CONTAINER, or the limit of the job    (nothing"
            " is lost, and it goes on faster)",
        ),
        prevent=(
            f"no more workers than the quota has cores ({group.quota_cores:.1f}):"
            " os.cpu_count() gives the machine's, not the container's",
            "OMP_NUM_THREADS=1 for the workers: libraries start a thread for each core of the"
            " machine",
        ),
        pids=tuple(each.pid for each in working),
    )


CAUSE = Cause(NAME, find)
