"""The thread that pins memory has ended, and the loop waits for what it would have given."""

from __future__ import annotations

from collections.abc import Iterator

from ...findings import Finding
from ..analyse import torch_loader as torchs
from ..analyse.threads_and_processes import Program
from .base import LIKELY, Cause, where

NAME = "pin-memory-thread-dead"


def find(program: Program) -> Iterator[Finding]:
    loop = torchs.loop(program)
    if loop is None or program.ours or not torchs.waits_for_pinned(program):
        return
    if torchs.pin_threads(program) or not torchs.waits_as_before(loop):
        return
    if any(not each.frames and each.before is None for each in program.main.threads):
        return  # one that has just begun, and may be it
    pid = program.main.pid
    yield Finding(
        NAME,
        LIKELY,
        f"the loop waits for a batch in pinned memory, {where(loop)}, and the thread that pins is"
        " gone: it died of an error",
        evidence=(
            "the loop waits in a queue of its own process, which only that thread fills",
            f"none of the {len(program.main.threads)} threads of the main process is in"
            " `_pin_memory_loop`, in the second look",
            "torch asks for it every five seconds and raises 'Pin memory thread exited"
            " unexpectedly'; with `timeout=` it does not ask, and waits for all of it",
        ),
        get_out=(
            "look for 'Exception in thread' and `_pin_memory_loop` in the log: it says why",
            f"kill -INT {pid}    (KeyboardInterrupt in the loop: the script can save; what it does"
            " not save is lost)",
        ),
        prevent=(
            "repair what the log names: a batch that cannot be read in the main process, too many"
            " open files, a GPU that failed",
            "pin_memory=False shows the same error in the loop itself",
        ),
        pids=(pid,),
    )


CAUSE = Cause(NAME, find)
