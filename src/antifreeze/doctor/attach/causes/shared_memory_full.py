"""There is no room in /dev/shm for the next batch."""

from __future__ import annotations

from collections.abc import Iterator

from ...findings import Finding
from ..analyse.threads_and_processes import Program
from ..analyse.waits import batch_lost, megabytes
from .base import LIKELY, POSSIBLE, Cause

NAME = "shared-memory-full"
_FULL_SHARE = 0.05  # free of the whole: no batch fits
_FULL_BYTES = 1 << 20
_SMALL = 64 << 20  # what Docker gives where nobody asks for more: one batch of images may be larger
_SOME_USED = 0.1


def find(program: Program) -> Iterator[Finding]:
    machine = program.machine
    if machine.shm <= 0 or not batch_lost(program):
        return
    free = min(machine.shm_free, program.machine_before.shm_free)
    no_files = machine.shm_inodes_free == 0
    full = free < _FULL_BYTES or free < _FULL_SHARE * machine.shm or no_files
    used = machine.shm - free
    if not full and machine.shm > _SMALL:
        return
    how = (
        "no file can be made in it any more"
        if no_files
        else f"{megabytes(free)} of {megabytes(machine.shm)} are free"
    )
    sure = full or used > _SOME_USED * machine.shm
    word = "is full" if full else "is too small for its batches"
    yield Finding(
        NAME,
        LIKELY if sure else POSSIBLE,
        f"/dev/shm {word} ({how}): a worker could not store its batch there, the batch was"
        f" dropped without an error, and the loop waits for it in {program.waits_for_batch}",
        evidence=(
            f"/dev/shm as the program sees it: {how}",
            f"all {len(program.living)} workers wait for an order, and the loop for a batch: nobody"
            " is working on it",
            "a traceback of 'QueueFeederThread' in the program's output would say 'No space left on"
            " device' or 'unable to allocate shared memory'",
        ),
        get_out=(
            f"kill -INT {program.main.pid}    (KeyboardInterrupt in the main thread: it can save,"
            " and has to be started again: the batch is lost and does not come back)",
            "df -h /dev/shm; ls -la /dev/shm    (files of runs that are over may be removed)",
        ),
        prevent=(
            "more room: docker run --shm-size=8g (or --ipc=host); in Kubernetes an emptyDir with"
            " medium: Memory at /dev/shm; elsewhere mount -o remount,size=8G /dev/shm",
            "less in flight: fewer workers, smaller prefetch_factor or batch_size",
            "antifreeze's loader waits for room, or sends the batch another way",
        ),
        pids=(program.main.pid, *(each.pid for each in program.living)),
    )


CAUSE = Cause(NAME, find)
