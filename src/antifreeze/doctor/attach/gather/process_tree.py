"""Who belongs to a program: its launcher, its ranks, their workers, from any one of them."""

from __future__ import annotations

import os

from ...._linux import procfs
from ...._transport import own_frames
from ..analyse.process_roles import WORKER, is_launcher, is_python
from . import proc

MOST = 200  # processes looked at
# How multiprocessing starts a process that is not forked.
_STARTED = ("multiprocessing.spawn", "multiprocessing.forkserver", "multiprocessing.resource_track")


def processes_of_program(pid: int) -> list[int]:
    """Return the processes of the program that a process belongs to, parents first."""
    above = proc.parents()
    below: dict[int, list[int]] = {}
    for child, parent in above.items():
        below.setdefault(parent, []).append(child)
    own = os.getpid()  # whoever looks is started by the same shell, perhaps
    top = _top(pid, above)
    found: list[int] = []
    todo = [top, *_fellow_orphans(top, above)]
    while todo and len(found) < MOST:
        each = todo.pop(0)
        if each == own:
            continue
        found.append(each)
        todo += sorted(below.get(each, []))
    return found


def started_by(pid: int) -> list[int]:
    """Return the Python programs that a process which is none itself has started, or those that it
    has started have; not those that a Python program has."""
    below: dict[int, list[int]] = {}
    for child, parent in proc.parents().items():
        below.setdefault(parent, []).append(child)
    found: list[int] = []
    todo, seen = [pid], 0
    while todo and seen < MOST:
        each = todo.pop(0)
        seen += 1
        for child in sorted(below.get(each, [])):
            if child == os.getpid():
                continue
            (found if proc.runs_python(child) else todo).append(child)
    return found


def _top(pid: int, above: dict[int, int]) -> int:
    """Climb from a worker to its program, and from a rank to its launcher."""
    while (parent := above.get(pid, 0)) > 0 and _belongs_to(pid, parent):
        pid = parent
    return pid


def _belongs_to(pid: int, parent: int) -> bool:
    command, over = _command(pid), _command(parent)
    if not is_python(over) and not proc.runs_python(parent):
        return False
    name = proc.read(pid, "comm").strip()
    if name == WORKER or name.startswith(own_frames.PROCESSES) or command == over:
        return True
    if any(mark in part for mark in _STARTED for part in command):
        return True
    return is_launcher(over)


def _command(pid: int) -> tuple[str, ...]:
    return tuple(procfs.strings(proc.read(pid, "cmdline")))[: proc.MOST_WORDS]


def _fellow_orphans(pid: int, above: dict[int, int]) -> list[int]:
    """Return the other workers of a main process that is gone: they have its process group."""
    if not _is_orphan(pid):
        return []
    same = [each for each, parent in above.items() if parent == above.get(pid) and each != pid]
    return [each for each in same if _is_orphan(each) and proc.group(each) == proc.group(pid)]


def _is_orphan(pid: int) -> bool:
    return proc.read(pid, "comm").strip() == WORKER
