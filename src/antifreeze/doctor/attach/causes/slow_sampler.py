"""The sampler, in the main process, takes long or never ends: the workers get nothing to do."""

from __future__ import annotations

from collections.abc import Iterator

from ...findings import Finding
from ..analyse.library_files import LOADER
from ..analyse.threads_and_processes import Program
from ..analyse.waits import at_line, same_function
from .base import POSSIBLE, Cause, interrupt_at_line

NAME = "slow-sampler"
_LEAST_SHARE = 0.05  # of a core: on a crowded machine one that computes gets no more


def find(program: Program) -> Iterator[Finding]:
    thread = program.main.main
    if thread is None or thread.before is None or program.main.stopped:
        return
    if thread.calls("_next_index", LOADER) is None or thread.own_line is None:
        return
    then = {each.name.rpartition(".")[2] for each in thread.before.frames}
    rests = thread.stuck or thread.share < _LEAST_SHARE
    if "_next_index" not in then or rests or not same_function(thread):
        return
    if not all(program.idle(each) for each in program.living):
        return
    count = len(program.living)
    yield Finding(
        NAME,
        POSSIBLE,
        f"the sampler is what takes long, {at_line(thread)}: it is asked in the main process for"
        " the indices of the next batch, and has given none between two looks; it is very slow, or"
        " never ends",
        evidence=(
            f"{program.main.label}: {thread.share:.0%} of a core, in the sampler in both looks,"
            f" {program.seconds:.1f} s apart",
            *([f"{count} of {count} workers wait for something to do"] if count else []),
        ),
        get_out=(
            f"look again, in a minute: antifreeze attach {program.main.pid}    (if the same line is"
            " named, it never ends)",
            interrupt_at_line(program.main),
        ),
        prevent=(
            "compute the order once an epoch, with numpy or torch, not for each batch; bound loops"
            " that search for a fitting index",
            "more workers do not help: the sampler runs in the main process only",
        ),
        pids=(program.main.pid,),
    )


CAUSE = Cause(NAME, find)
