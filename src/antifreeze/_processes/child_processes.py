"""The programs that a worker has started: who they are, and how they are ended with it.

A worker that is ended by force cannot end them itself, and what a stuck sample waited for would
run on for ever. Who has a session of its own was meant to be left alone, and is.
"""

from __future__ import annotations

import contextlib
import os
import signal
from pathlib import Path

from .._core.limits import LIMITS


def family(pid: int) -> list[int]:
    """Give a process and those it has started, and so on."""
    found = [pid]
    for each in found:
        if len(found) >= LIMITS.searches.child_processes:
            break
        for task in tasks(each):
            found += children(each, task)
    return found[: LIMITS.searches.child_processes]


def children(pid: int, task: str) -> list[int]:
    """Give the processes that a thread has started."""
    with contextlib.suppress(OSError):  # it has ended meanwhile
        listed = Path(f"/proc/{pid}/task/{task}/children").read_text()
        return [int(child) for child in listed.split()]
    return []


def tasks(pid: int) -> list[str]:
    """Give the threads of a process."""
    try:
        return os.listdir(f"/proc/{pid}/task")
    except OSError:
        return []


class ChildProcesses:
    """What a process has started, as it was a moment ago. To be used at once, and closed."""

    def __init__(self, pid: int) -> None:
        self._pidfds: list[int] = []
        with contextlib.suppress(OSError):  # it is gone, and nobody knows whose children were its
            session = os.getsid(pid)
            for child in family(pid)[1:]:
                with contextlib.suppress(OSError):
                    self._open(child, session)

    def _open(self, child: int, session: int) -> None:
        pidfd = os.pidfd_open(child)
        self._pidfds.append(pidfd)
        if os.getsid(child) != session:
            os.close(self._pidfds.pop())

    def spare(self) -> None:
        """Leave them alone from now on."""
        for pidfd in self._pidfds:
            os.close(pidfd)
        self._pidfds.clear()

    def end(self, by: signal.Signals) -> None:
        for pidfd in self._pidfds:
            with contextlib.suppress(OSError):  # it was quicker
                signal.pidfd_send_signal(pidfd, by)
        self.spare()
