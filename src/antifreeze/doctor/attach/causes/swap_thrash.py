"""The machine moves memory to a disk and back, and everything crawls."""

from __future__ import annotations

from collections.abc import Iterator

from ...findings import Finding
from ..analyse.threads_and_processes import Program
from ..analyse.waits import megabytes, rate
from .base import LIKELY, Cause

NAME = "swap-thrash"
_PAGES_S = 1000.0  # brought back in a second: 4 MB of single pages, which take most of the time
_FAULTS_S = 50.0  # of our processes
_PAGE = 4096


def find(program: Program) -> Iterator[Finding]:
    now, then = program.machine, program.machine_before
    if program.seconds <= 0 or now.swap <= 0:
        return
    pages = (now.swapped_in - then.swapped_in) / program.seconds
    faults = rate(program, "major_faults")
    swapped = sum(each.now.memory.swapped for each in program.all)
    if pages < _PAGES_S or faults < _FAULTS_S or not swapped:
        return
    yield Finding(
        NAME,
        LIKELY,
        f"the machine has too little memory and swaps: {megabytes(pages * _PAGE)} come back from"
        f" disk in a second, {megabytes(swapped)} of this program are out there, and everything"
        " crawls",
        evidence=(
            f"swapped in: {pages:.0f} pages/s; out:"
            f" {(now.swapped_out - then.swapped_out) / program.seconds:.0f} pages/s",
            f"this program has waited for {faults:.0f} pages from disk in a second",
            f"free memory: {megabytes(now.memory_free)} of {megabytes(now.memory)}; swap used:"
            f" {megabytes(now.swap - now.swap_free)} of {megabytes(now.swap)}",
        ),
        get_out=(
            "end other programs that use much memory (ps aux --sort=-rss | head): nothing of this"
            " one is lost, and it goes on faster",
        ),
        prevent=(
            "fewer workers, or a dataset that is not copied into each: a list of Python objects is"
            " copied page by page as workers read it; arrays and memory maps are not",
        ),
        pids=tuple(each.pid for each in (program.main, *program.living)),
    )


CAUSE = Cause(NAME, find)
