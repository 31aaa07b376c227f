"""Children that are dead, and that nobody has buried."""

from __future__ import annotations

import signal
from collections.abc import Iterator

from ...._linux.syscalls import Syscall
from ...findings import Finding
from ..analyse import torch_loader as torchs
from ..analyse.library_files import CONNECTION
from ..analyse.threads_and_processes import Program, Role, WatchedProcess, WatchedThread
from .base import LIKELY, POSSIBLE, Cause, kill_worker, names_of, plural, where

NAME = "zombie-children"
MANY = 200  # dead ones: the number of processes has a limit
_SIGCHLD = 1 << (signal.SIGCHLD - 1)


def find(program: Program) -> Iterator[Finding]:
    dead = [each for each in program.others if each.dead and _was_dead(each)]
    for parent in (program.main, *program.living):
        mine = [each for each in dead if each.now.parent == parent.pid]
        reading = _reads_from_pipe(parent)
        if mine and reading is not None:
            yield from _awaits_the_dead(program, parent, reading, mine)
    if len(dead) >= MANY:
        yield _many(program, dead)
    yield from _unnoticed(program)


def _was_dead(process: WatchedProcess) -> bool:
    """Whether it was dead in the first look too: most are buried in the next moment."""
    return process.before is not None and process.before.state in "ZX"


def _reads_from_pipe(parent: WatchedProcess) -> WatchedThread | None:
    for each in parent.threads:
        reads = each.stuck and each.now.call[:1] == (Syscall.READ,)
        if reads and each.descriptor().startswith("pipe:") and not _reads_message(each):
            return each
    return None


def _reads_message(thread: WatchedThread) -> bool:
    """Whether it reads a message of multiprocessing: those are others' to tell of."""
    return thread.calls("_recv_bytes", CONNECTION) is not None


def _awaits_the_dead(
    program: Program, parent: WatchedProcess, reading: WatchedThread, dead: list[WatchedProcess]
) -> Iterator[Finding]:
    pipe = reading.descriptor()
    holders = [
        each
        for each in program.all
        if not each.dead and any(d.target == pipe and d.flags & 3 for d in each.now.descriptors)
    ]
    if any(each.role is Role.CHILD for each in holders):
        return  # somebody is there who may still write
    names = ", ".join(f"{each.now.name} (pid {each.pid})" for each in dead[:3])
    held = ", ".join(each.label for each in holders)
    yield Finding(
        NAME,
        LIKELY if holders else POSSIBLE,
        f"{parent.label} reads from a pipe, {where(reading)}, and {names} at the other end has"
        " ended: the end of the pipe never comes"
        + (f", for {held} {plural(holders, 'holds', 'hold')} it open" if holders else ""),
        evidence=(
            *(
                f"{each.now.name} (pid {each.pid}) {torchs.how_it_died(each.now)}"
                for each in dead[:3]
            ),
            f"the read has not come back in {program.seconds:.1f} s",
            *([f"the end for writing is open in: {held}"] if holders else []),
        ),
        get_out=(
            kill_worker([parent])
            if parent.role is Role.WORKER
            else f"kill -INT {parent.pid}    (KeyboardInterrupt where it reads: the script can"
            " save; what it does not save is lost)",
        ),
        prevent=(
            "close your own end for writing once the child is started (subprocess.PIPE does so),"
            " and put a limit on the wait: communicate(timeout=...)",
        ),
        pids=(parent.pid, *(each.pid for each in dead)),
    )


def _many(program: Program, dead: list[WatchedProcess]) -> Finding:
    return Finding(
        NAME,
        LIKELY,
        f"{len(dead)} children are dead and not buried, and their number has a limit: soon no"
        " process can be started",
        evidence=(f"the first of them: {dead[0].now.name} (pid {dead[0].pid})",),
        get_out=(f"kill -INT {program.main.pid}    (they go with it; the script can save)",),
        prevent=("call wait() or poll() on each child that you start",),
        pids=tuple(each.pid for each in dead),
    )


def _unnoticed(program: Program) -> Iterator[Finding]:
    """Find workers that died while the main thread was elsewhere, and cannot hear of it."""
    dead, main = torchs.killed_workers(program), program.main.main
    if (
        not dead
        or main is None
        or not program.seen
        or torchs.loop(program)
        or torchs.ends_program(main)
    ):
        return
    blocked = program.main.now.blocks_signals & _SIGCHLD
    why = "it blocks SIGCHLD" if blocked else "it hears of it when that line is done"
    yield Finding(
        NAME,
        LIKELY,
        f"{names_of(dead)} {plural(dead, 'has', 'have')} died, and the main thread does not know"
        f" yet: it is {where(main)}, and {why}",
        evidence=(
            *(f"{each.label}: {torchs.how_it_died(each.now)}" for each in dead),
            *([f"the main thread is in {main.native[0]}"] if main.native else []),
            *torchs.out_of_memory(program),
        ),
        get_out=(
            "nothing now: torch raises an error when the main thread comes back",
            f"kill -9 {program.main.pid}    (if it does not; all since the last checkpoint is"
            " lost)",
        ),
        prevent=("find out what killed it: `dmesg | grep -i kill` tells if it was memory",),
        pids=tuple(each.pid for each in dead),
    )


CAUSE = Cause(NAME, find)
