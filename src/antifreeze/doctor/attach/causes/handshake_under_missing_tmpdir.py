"""Tensors are handed over by a socket in the folder for temporary files, which is not usable."""

from __future__ import annotations

from collections.abc import Iterator

from ...findings import Finding
from ..analyse.threads_and_processes import Program
from ..analyse.waits import batch_lost
from .base import LIKELY, Cause

NAME = "handshake-under-missing-tmpdir"
_LONGEST = 107  # bytes of a socket's path
_ADDED = len("/pymp-xxxxxxxx/listener-xxxxxxxx")


def find(program: Program) -> Iterator[Finding]:
    why = _why(program)
    if not why or not batch_lost(program) or _listens(program):
        return
    yield Finding(
        NAME,
        LIKELY,
        f"the folder for temporary files ({program.machine.temporary}) {why}: the workers"
        " cannot make the socket there by which tensors are handed over, the batch was dropped"
        f" without an error, and the loop waits for it in {program.waits_for_batch}",
        evidence=(
            f"TMPDIR is {program.machine.temporary}: it {why}",
            f"all {len(program.living)} workers wait for an order, and the loop for a batch; no"
            " worker listens at a socket",
        ),
        get_out=(
            f"kill -INT {program.main.pid}    (KeyboardInterrupt in the main thread: it can save;"
            " start it again with TMPDIR=/tmp: the batch is lost)",
        ),
        prevent=(
            "TMPDIR must be there for the whole run, writable, and no longer than"
            f" {_LONGEST - _ADDED} bytes: jobs of a scheduler that clean it up, or nest it deeply,"
            " break it",
            "torch.multiprocessing.set_sharing_strategy('file_system'), or antifreeze's loader,"
            " which needs no socket",
        ),
        pids=(program.main.pid, *(each.pid for each in program.living)),
    )


def _why(program: Program) -> str:
    machine = program.machine
    if not machine.temporary:
        return ""
    if not machine.temporary_there:
        return "is gone"
    if len(machine.temporary.rstrip("/").encode()) + _ADDED > _LONGEST:
        return f"has a path too long for a socket ({len(machine.temporary)} bytes)"
    if machine.temporary_free == 0:
        return "has no room left"
    return ""


def _listens(program: Program) -> bool:
    """Whether a worker has been able to make its socket."""
    return any(
        "/listener-" in each.target for worker in program.living for each in worker.now.descriptors
    )


CAUSE = Cause(NAME, find)
