"""Who could read the pipes that somebody is in a write into: of the program, or any other process.

To look through the open files of all processes takes some time, so it is done only where a write
waits.
"""

from __future__ import annotations

import os

from ...._linux.clock import monotonic
from ...._linux.syscalls import WRITES
from ..facts import PipeReader, Process
from . import proc

MOST = 2000  # processes of the machine that are looked through
READERS = 16  # that are written down
READERS_S = 5.0  # for all of them: somebody may have opened as many files as there can be
_ACCESS, _WRITE_ONLY = 3, 1  # the bits of a descriptor's flags that say how it was opened


def readers_of_pipes(processes: tuple[Process, ...]) -> tuple[PipeReader, ...]:
    """Return who has the other end of the pipes that these processes are in a write into."""
    pipes = {pipe for each in processes for pipe in _written(each)}
    if not pipes:
        return ()
    own = os.getpid()
    found: list[PipeReader] = []
    until = monotonic() + READERS_S
    for pid in sorted(proc.parents())[-MOST:]:
        if pid == own or monotonic() > until:
            continue
        for pipe in sorted(pipes & _read(pid)):
            asleep_in = proc.sleeps_in(pid).strip("0")
            found.append(PipeReader(pipe, pid, proc.name(pid), proc.state(pid), asleep_in))
    return tuple(found[:READERS])


def _written(process: Process) -> set[str]:
    """Return the pipes that threads of a process are in a write into, asleep."""
    targets = {each.number: each.target for each in process.descriptors}
    numbers = {
        each.call[1]
        for each in process.threads
        if len(each.call) > 1 and each.call[0] in WRITES and each.state == "S"
    }
    found = {targets.get(each, "") for each in numbers}
    return {each for each in found if each.startswith("pipe:")}


def _read(pid: int) -> set[str]:
    """Return the pipes that a process could read from."""
    return {target for target, flags in proc.opened(pid, "pipe:") if flags & _ACCESS != _WRITE_ONLY}
