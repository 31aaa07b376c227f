"""The thread that pins memory does not come back from what it does."""

from __future__ import annotations

from collections.abc import Iterator

from ...findings import Finding
from ..analyse import torch_loader as torchs
from ..analyse.threads_and_processes import Program, WatchedThread
from .base import LIKELY, Cause, where

NAME = "pin-memory-thread-stuck"


def find(program: Program) -> Iterator[Finding]:
    loop = torchs.loop(program)
    if (
        loop is None
        or program.ours
        or not torchs.waits_for_pinned(program)
        or torchs.killed_workers(program)
    ):
        return
    pins = torchs.pin_threads(program)
    stuck = [each for each in pins if each.frames and each.stuck and not _waits_for_workers(each)]
    if not stuck or len(stuck) < len(pins) or not torchs.waits_as_before(loop):
        return
    thread, pid = stuck[0], program.main.pid
    yield Finding(
        NAME,
        LIKELY,
        f"the loop waits for a batch in pinned memory, {where(loop)}, and the thread that pins has"
        f" not moved: it is {where(thread)}",
        evidence=(
            f"thread {thread.now.name!r}: at the same line in both looks, without CPU,"
            f" {program.seconds:.1f} s apart; it does not wait for a worker",
            *([f"below that line it is in {thread.native[0]}"] if thread.native else []),
            *([f"the kernel has it in {thread.now.waits_in}"] if thread.now.waits_in else []),
        ),
        get_out=(
            f"kill -INT {pid}    (KeyboardInterrupt in the loop: the script can save; what it does"
            " not save is lost; its end may then wait for the same thread: kill -9)",
        ),
        prevent=(
            "if it is in the driver: look at `nvidia-smi` and `dmesg` for a GPU that failed",
            "if it reads a batch: its worker may be gone or stopped; if it is in a `pin_memory` of"
            " yours: it must not wait",
            "pin_memory=False goes without the thread",
        ),
        pids=(pid,),
    )


def _waits_for_workers(thread: WatchedThread) -> bool:
    """Whether it waits for the next batch, or for the rest of one, or to hand one over."""
    if thread.calls("put", "queue.py"):
        return True
    return torchs.awaits_message(thread) or torchs.in_message(thread)


CAUSE = Cause(NAME, find)
