"""A new process died before it had read what it was sent, and the main process waits to send it."""

from __future__ import annotations

from collections.abc import Iterator

from ...findings import Finding
from ..analyse.threads_and_processes import Program, WatchedProcess
from ..analyse.torch_loader import how_it_died
from ..analyse.waits import at_line
from .base import CERTAIN, LIKELY, Cause
from .slow_unpickling import interrupt, sends

NAME = "worker-died-at-start"


def find(program: Program) -> Iterator[Finding]:
    for thread in program.main.threads:
        if not sends(thread) or not thread.stuck:
            continue
        pipe = thread.descriptor()
        ends = {each.pid for each in program.case.looks[-1].pipe_readers if each.pipe == pipe}
        dead = _latest_dead(program)
        if ends != {program.main.pid} or _held_by_child(program, pipe):
            continue
        died = f" ({how_it_died(dead.now)})" if dead is not None else ""
        yield Finding(
            NAME,
            CERTAIN if dead is not None else LIKELY,
            f"a process that {program.main.label} has just started, {at_line(thread)}, has died"
            f"{died} before it had read what it was sent (the dataset, most often): the main"
            " process waits to send the rest, and nobody reads it",
            evidence=(
                f"{program.main.label}: no CPU, in a write to {pipe}, in both looks",
                "nobody but the main process itself has the other end of that pipe",
                *([f"its child {dead.pid} is dead: {how_it_died(dead.now)}"] if dead else []),
            ),
            get_out=(
                "see what the program has printed: the traceback of the new process says why it"
                " died; nothing is lost by looking",
                interrupt(program.main.pid),
            ),
            prevent=(
                "what a dataset needs to be unpickled must be importable in a new process: classes"
                " and functions at the top level of a module, the rest of the script under `if"
                " __name__ == '__main__':`",
                "try it: pickle.loads(pickle.dumps(dataset)) in a new interpreter",
            ),
            pids=(program.main.pid, *([dead.pid] if dead is not None else [])),
        )


def _latest_dead(program: Program) -> WatchedProcess | None:
    dead = [
        each
        for each in (*program.workers, *program.others)
        if each.dead and each.now.parent == program.main.pid
    ]
    return max(dead, key=lambda each: each.now.started_at, default=None)


def _held_by_child(program: Program, pipe: str) -> bool:
    return any(
        descriptor.target == pipe
        for each in (*program.living, *program.others)
        if not each.dead
        for descriptor in each.now.descriptors
    )


CAUSE = Cause(NAME, find)
