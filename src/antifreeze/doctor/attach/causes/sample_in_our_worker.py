"""antifreeze's own loader waits for a worker that is in a sample. It watches it by itself."""

from __future__ import annotations

from collections.abc import Iterator

from ...._transport import own_frames
from ...findings import Finding
from ..analyse.threads_and_processes import Program, Role
from ..analyse.waits import sleeps
from .base import LIKELY, Cause, kill_worker, names_of, plural, where

NAME = "sample-in-our-worker"


def find(program: Program) -> Iterator[Finding]:
    thread = program.main.main
    if thread is None or thread.calls_own(own_frames.LOOP_WAITS) is None:
        return
    stuck = [
        (worker, at)
        for worker in program.living
        if worker.role is Role.OUR_WORKER
        and (at := worker.main) is not None
        and at.stuck
        and not program.idle(worker)
        and at.own_line is not None
        and not sleeps(at)  # that may be as it should: `sleeping-sample` knows more of it
    ]
    if not stuck:
        return
    workers = [worker for worker, _ in stuck]
    yield Finding(
        NAME,
        LIKELY,
        f"the loop waits for {names_of(workers)}, which {plural(workers, 'does', 'do')} nothing"
        f" {where(stuck[0][1])}",
        evidence=tuple(f"{worker.label} is {where(at)}, without CPU" for worker, at in stuck),
        get_out=(kill_worker(workers),),
        prevent=(
            "sample_timeout=SECONDS: antifreeze then ends it by itself, and on_error='skip' or"
            " 'replace' goes on without the sample",
        ),
        pids=tuple(worker.pid for worker in workers),
        general=True,
    )


CAUSE = Cause(NAME, find)
