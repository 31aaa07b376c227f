"""One sample takes more and more memory."""

from __future__ import annotations

from collections.abc import Iterator

from ...findings import Finding
from ..analyse.threads_and_processes import Program, WatchedProcess
from ..analyse.waits import at_line, in_sample, loop_waits, megabytes
from ..analyse.workers_by_loader import and_the_loop_waits
from .base import LIKELY, POSSIBLE, Cause, kill_worker

NAME = "huge-sample"
_GROWS_BYTES_S = 40e6
_LARGE_BYTES = 200e6  # more than the others: what a batch of images takes is less
_LARGE_SHARE = 0.25  # of all memory that it may use


def find(program: Program) -> Iterator[Finding]:
    if not loop_waits(program):
        return
    limit = program.machine.group.memory_limit or program.machine.memory
    for worker in program.living:
        thread = worker.main
        if thread is None or worker.before is None or program.seconds <= 0:
            continue
        if (
            not in_sample(program, worker)
            or worker.now.written_bytes != worker.before.written_bytes
        ):
            continue
        own = worker.now.memory.own
        growth = (own - worker.before.memory.own) / program.seconds
        more = own - _usual(program, worker)
        grows = growth >= _GROWS_BYTES_S and more >= _LARGE_BYTES
        large = limit > 0 and more >= _LARGE_SHARE * limit
        if not grows and not large:
            continue
        how = f"and has taken {megabytes(growth)} more in a second" if grows else "in one sample"
        yield Finding(
            NAME,
            LIKELY if grows else POSSIBLE,
            f"{worker.label} holds {megabytes(own)} {how}, {at_line(thread)}: one sample is far"
            f" larger than the others{and_the_loop_waits(program, [worker])}",
            evidence=(
                f"{worker.label}: {megabytes(worker.before.memory.own)}, then {megabytes(own)}"
                f" {program.seconds:.1f} s later; the others hold about"
                f" {megabytes(_usual(program, worker))}",
                f"{megabytes(program.machine.memory_free)} of {megabytes(limit)} are free",
                "it has sent no batch between the looks",
            ),
            get_out=(
                f"if memory runs out the kernel kills it, or another: {kill_worker([worker])}",
            ),
            prevent=(
                "check a sample's size before it is decoded (an archive or an image that unpacks to"
                " gigabytes, a text without line ends); PIL has Image.MAX_IMAGE_PIXELS",
            ),
            pids=(worker.pid,),
        )


def _usual(program: Program, worker: WatchedProcess) -> int:
    """Return what the others hold: the median of the other workers, or the main process."""
    others = sorted(each.now.memory.own for each in program.living if each is not worker)
    return others[len(others) // 2] if others else program.main.now.memory.own


CAUSE = Cause(NAME, find)
