"""A zygote that was kept when its epoch was over, seen from the main process.

What runs in it: `reused_zygote_main`.

1. Each new iterator compares what it would send with what this one was sent, to the byte. If that
   is the same, its zygote is forked from this one, and nothing is sent.
2. It belongs to a loader, and ends with it: its memory is that of one copy of the dataset.
3. What is kept by all loaders of a program takes a part of the memory that is left, at most, and is
   given back when somebody needs it.
4. Nothing is kept that others may be waiting for: the end of a pipe, a socket, a locked file. In
   torch they are closed in all workers when an epoch is over.
"""

from __future__ import annotations

import contextlib
import os
import select
import signal
import socket
import stat
import threading
import weakref
from collections.abc import Sequence

from ..._core.limits import LIMITS, Bounds
from ..._linux.available_memory import available
from ..._loading.job import Job
from ..._transport.descriptors import Descriptor, keep_from_children
from ..._transport.memory import MemoryShort
from ..._transport.stack_file import StackFile
from ...errors import TransportFailed
from ..replication.job_pickler import is_still
from ..replication.module_state import Known
from ..replication.process_settings import ProcessSettings
from ..replication.shared_payload import CostsTooMuch, Payload
from ..replication.unsendable import Unsendable
from . import clean_process
from .clean_process_main import Ended
from .zygote_forks import ask_for


def may_be_kept(payload: Payload) -> bool:
    """Whether what was sent may stay: memory, and as much as there is room for."""
    if not all(_is_memory(each.number) for each in payload.riders):
        return False
    held = sum(each.bytes for each in _all) + payload.bytes
    return LIMITS.starting.kept_zygote_share * held <= available().bytes


def give_back() -> bool:
    """End all that this program keeps. Return whether there was any."""
    ended = [each.end_if_idle() for each in list(_all)]
    return any(ended)


def _is_memory(descriptor: int) -> bool:
    status = os.fstat(descriptor)
    return stat.S_ISREG(status.st_mode) and not status.st_nlink


class Kept:
    """One process that holds what was sent."""

    def __init__(
        self,
        sock: socket.socket,
        pid: int,
        pidfd: Descriptor,
        payload: Payload,
        known: Known,
        home: clean_process.CleanProcess,
    ) -> None:
        self.pid, self.sealed, self.bytes = pid, payload.each_opens, payload.bytes
        self._sock, self._pidfd, self._payload = sock, pidfd, payload
        self._known, self._home = known, home
        self._owner, self._rights = os.getpid(), clean_process.rights()
        self._is_closed = False
        self._in_use = threading.Lock()  # while somebody compares with it, or asks it
        _all.add(self)
        keep_from_children(self)

    @property
    def is_fit(self) -> bool:
        """Whether it can be asked: it lives, and has no rights that the program gave up."""
        if self._is_closed:
            return False
        poller = select.poll()
        poller.register(self._pidfd.number, select.POLLIN)
        return not poller.poll(0) and self._rights == clean_process.rights()

    def holds(self, job: Job, bounds: Bounds) -> bool:
        """Whether what would be sent is what it was sent."""
        try:
            with self._in_use:
                still = ProcessSettings.collect(self._known)
                return is_still(self._payload, still, job, bounds)
        except (TransportFailed, Unsendable, CostsTooMuch, MemoryShort, OSError):
            return False  # whoever sends it says why it cannot be

    def bring(self, channel: socket.socket, trace: StackFile) -> None:
        """Have a zygote begin at this end of a channel. Raises SourceGone."""
        with self._in_use:
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
        if self._owner == os.getpid() and not self._is_closed:
            self.kill()
        self.close()

    def end_if_idle(self) -> bool:
        """End it, unless somebody is about to use it. Return whether it has been ended."""
        if not self._in_use.acquire(blocking=False):
            return False
        try:
            self.end()
        finally:
            self._in_use.release()
        return True

    def close(self) -> None:
        """Let go of it; in a child of the user's, too."""
        self._is_closed = True
        _all.discard(self)
        self._sock.close()
        self._pidfd.close()
        self._payload.close()

    def __repr__(self) -> str:
        return f"<Kept pid {self.pid}>"


_all: weakref.WeakSet[Kept] = weakref.WeakSet()  # of this process
