"""The programs that a worker has started: who they are, and how they are ended with it.

A worker that is ended by force cannot end them itself, and what a stuck sample waited for would
run on for ever. Who has a session of its own was meant to be left alone, and is.
"""

from __future__ import annotations

import contextlib
import os
import signal

from .._linux.live_processes import with_descendants


class ChildProcesses:
    """What a process has started, as it was a moment ago. To be used at once, and closed."""

    def __init__(self, pid: int) -> None:
        self._pidfds: list[int] = []
        with contextlib.suppress(OSError):  # it is gone, and nobody knows whose children were its
            session = os.getsid(pid)
            for child in with_descendants(pid)[1:]:
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
