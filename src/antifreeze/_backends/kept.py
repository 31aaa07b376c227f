"""A template that was kept when its epoch was over, seen from the main process (see `keeping`).

1. Each new iterator compares what it would send with what this one was sent, to the byte. If that
   is the same, its template is forked from this one, and nothing is sent.
2. It belongs to a loader, and ends with it: its memory is that of one copy of the dataset.
"""

from __future__ import annotations

import contextlib
import os
import select
import signal
import socket
from collections.abc import Sequence

from .._core.descent import Bounds
from .._transport.descriptors import Descriptor, keep_from_children
from .._transport.memory import MemoryShort
from .._transport.trace import Trace
from .._worker.spec import Job
from ..errors import TransportFailed
from . import nursery
from .bringing import ask_for
from .circumstances import Circumstances
from .faithful import Unsendable
from .modules import Known
from .nursery_process import Ended
from .payload import CostsTooMuch, Payload
from .sending import is_still


class Kept:
    """One process that holds what was sent."""

    def __init__(
        self,
        sock: socket.socket,
        pid: int,
        pidfd: Descriptor,
        payload: Payload,
        known: Known,
        home: nursery.Nursery,
    ) -> None:
        self.pid, self.sealed = pid, payload.each_opens
        self._sock, self._pidfd, self._payload = sock, pidfd, payload
        self._known, self._home = known, home
        self._owner, self._rights = os.getpid(), nursery.rights()
        keep_from_children(self)

    @property
    def is_fit(self) -> bool:
        """Whether it can be asked: it lives, and has no rights that the program gave up."""
        poller = select.poll()
        poller.register(self._pidfd.number, select.POLLIN)
        return not poller.poll(0) and self._rights == nursery.rights()

    def holds(self, job: Job, bounds: Bounds) -> bool:
        """Whether what would be sent is what it was sent."""
        try:
            return is_still(self._payload, Circumstances.collect(self._known), job, bounds)
        except (TransportFailed, Unsendable, CostsTooMuch, MemoryShort, OSError):
            return False  # whoever sends it says why it cannot be

    def bring(self, channel: socket.socket, trace: Trace) -> None:
        """Have a template begin at this end of a channel. Raises OriginGone."""
        ask_for(self._sock, channel, trace)

    def known(self) -> Known:
        return self._known

    def how_ended(self, pid: int, within_s: float) -> Ended | None:
        """Nobody tells."""
        return None

    def warm(self, modules: Sequence[str]) -> None:
        """Nothing to do: it has imported what it needs."""

    def kill(self) -> None:
        with contextlib.suppress(OSError):  # it was quicker
            signal.pidfd_send_signal(self._pidfd.number, signal.SIGKILL)

    def go_on(self) -> None:
        """Resume it, if somebody has stopped it."""
        with contextlib.suppress(OSError):  # it is gone
            signal.pidfd_send_signal(self._pidfd.number, signal.SIGCONT)

    def end(self) -> None:
        """End it, if it is this process's, and give everything back."""
        if self._owner == os.getpid():
            self.kill()
        self.close()

    def close(self) -> None:
        """Let go of it; in a child of the user's, too."""
        self._sock.close()
        self._pidfd.close()
        self._payload.close()

    def __repr__(self) -> str:
        return f"<Kept pid {self.pid}>"
