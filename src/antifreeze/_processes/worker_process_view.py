"""A life as a process, for outside eyes: what people find in `iterator._workers`."""

from __future__ import annotations

import contextlib
import select
import signal

from .._core.commands import Force
from .._transport.descriptors import Descriptor
from .child_processes import ChildProcesses

_SIGNALS = {Force.TERMINATE: signal.SIGTERM, Force.KILL: signal.SIGKILL}
LONGEST_WAIT_S = 3600.0  # what poll takes has a limit; waiting again costs nothing


class WorkerHandle:
    """Looks like a `multiprocessing.Process` where others look at one."""

    daemon = True

    def __init__(self, name: str) -> None:
        self.name = name
        self.pid: int | None = None  # not born yet
        self.exitcode: int | None = None
        self._pidfd: Descriptor | None = None
        self._force: Force | None = None  # asked for before it was born
        self._over = False

    @property
    def ident(self) -> int | None:
        return self.pid

    @property
    def sentinel(self) -> int:
        if self._pidfd is None or self._over:
            raise ValueError("process not started, or ended")
        return self._pidfd.number

    def born(self, pid: int, pidfd: Descriptor) -> None:
        self.pid, self._pidfd = pid, pidfd
        if self._force is not None:
            self.end(self._force)

    def over(self) -> None:
        """Treat it as ended: the descriptor is about to be closed."""
        self._over = True

    @property
    def forced(self) -> bool:
        """Whether somebody here has ended it."""
        return self._force is not None

    def is_alive(self) -> bool:
        return not (self._over or self._has_ended(0))

    def join(self, timeout: float | None = None) -> None:
        if not self._over:
            longest_s = LONGEST_WAIT_S if timeout is None else max(0.0, timeout)
            self._has_ended(longest_s)

    def terminate(self) -> None:
        self.end(Force.TERMINATE)

    def kill(self) -> None:
        self.end(Force.KILL)

    def end(self, force: Force) -> None:
        self._force = force
        if self._pidfd is not None and self.pid is not None and not self._over:
            started = ChildProcesses(self.pid)  # while they can be told from others
            if self._has_ended(0):  # and its number may have been another's by then
                started.spare()
            with contextlib.suppress(OSError):  # it was quicker
                signal.pidfd_send_signal(self._pidfd.number, _SIGNALS[force])
            started.end(_SIGNALS[force])

    def __repr__(self) -> str:
        state = "not born" if self.pid is None else "alive" if self.is_alive() else "ended"
        return f"<WorkerHandle {self.name!r}, pid {self.pid}, {state}>"

    def _has_ended(self, longest_s: float) -> bool:
        if self._pidfd is None:
            return False
        poller = select.poll()
        poller.register(self._pidfd.number, select.POLLIN)
        return bool(poller.poll(1000 * longest_s))
