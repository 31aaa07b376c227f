"""One worker process as the main process sees it: its channel, its outbox, its stacks."""

from __future__ import annotations

import contextlib
import signal
import socket
from collections import deque
from collections.abc import Iterator
from dataclasses import replace

from .._core.faults import Ending
from .._core.health.stall_detection import StackLine
from .._core.limits import LIMITS
from .._core.tickets import Errand
from .._linux.clock import monotonic
from .._transport.descriptors import Descriptor, keep_from_children, received
from .._transport.framing import CHUNK, Frame, FrameReader, Kind, prefix
from .._transport.mapped_slabs import MappedSlabs
from .._transport.stack_file import ASKED_BY, StackFile
from .._transport.status_board import StatusLine
from .worker_process_view import WorkerHandle

_RIDERS = socket.CMSG_SPACE(4)  # room for the one descriptor a message may carry


class Line:
    """One worker process as the main process sees it: its process, its channel, its outbox."""

    def __init__(
        self, worker: WorkerHandle, sock: socket.socket, status: StatusLine, shelf: MappedSlabs
    ) -> None:
        self.seat, self.life = shelf.seat, shelf.life
        self.worker, self.sock, self.status, self.shelf = worker, sock, status, shelf
        self.trace = StackFile()
        self.reader = FrameReader()
        self.outbox: deque[memoryview] = deque()
        self._torn = False  # a read was not finished
        self.pidfd: Descriptor | None = None  # from its birth on
        self.ending: Ending | None = None  # when its parent has told it
        self.orphaned: Ending | None = None  # its parent is gone itself
        self.unheard = False  # nothing it says counts any more: it is about to be ended
        self.told_to_leave = False
        self.has_left = False  # as told: only the kernel has work with it
        self.garbled = False  # somebody else's bytes came
        self._looked_at = (0, 0)  # which call it was in
        self._since = 0.0  # ... and from when on
        self._asked_from: int | None = None  # where in the trace the answer begins
        sock.setblocking(False)
        keep_from_children(self)

    def put(self, kind: Kind, data: bytes) -> None:
        self.outbox.append(memoryview(prefix(kind, len(data)) + data))
        self.flush()

    def flush(self) -> None:
        """Send what the channel takes now. Never blocks."""
        while self.outbox:
            try:
                sent = self.sock.send(self.outbox[0])
            except (BrokenPipeError, ConnectionResetError):
                self.outbox.clear()  # the other end is gone; its death is about to be told
                return
            except OSError:  # full, or the kernel is short of memory: later
                return
            if sent < self.outbox[0].nbytes:
                self.outbox[0] = self.outbox[0][sent:]
            else:
                self.outbox.popleft()

    def read(self, *, to_the_end: bool = False) -> Iterator[Frame]:
        """Yield the frames that are there; `to_the_end`, all of them. Raises EOFError when the
        other end is closed. (A read ends early where a descriptor travels along.)

        Who was interrupted in here may have taken bytes and lost them: nothing more is read then.
        """
        if self._torn:
            raise EOFError
        self._torn = True
        yield from self._read(to_the_end)
        self._torn = False

    def _read(self, to_the_end: bool) -> Iterator[Frame]:
        while True:
            try:
                large = self.reader.receive_into()
                if large is not None:
                    count = self.sock.recv_into(large)
                    if not count:
                        raise EOFError
                    yield from self.reader.advance(count)
                    continue
                data, riders, _, _ = self.sock.recvmsg(CHUNK, _RIDERS, socket.MSG_CMSG_CLOEXEC)
            except BlockingIOError:
                return
            except OSError as error:
                raise EOFError from error
            descriptors = received(riders) if riders else []
            if not data:
                raise EOFError
            yield from self.reader.feed(data, descriptors)
            if len(data) < CHUNK and not to_the_end and not self.reader.receive_into():
                return

    def renewed(self, errand: Errand) -> Errand:
        """Ask for a new slab for as long as one is needed: the worker may skip tickets."""
        lease = errand.lease
        if lease.renewed:
            self.shelf.spoil(lease.slot)
        elif lease.slot in self.shelf.lacking:
            return replace(errand, lease=replace(lease, renewed=True))
        return errand

    def stack(self, look_s: float) -> tuple[StackLine, ...]:
        """Return the stack of the present call. If the worker, which looks at itself so often, has
        left none, it keeps the interpreter's lock: it is asked for one, once a call."""
        call, now = self.status.call, monotonic()
        if call != self._looked_at:
            self._looked_at, self._since, self._asked_from = call, now, None
        if found := self.trace.stack(call):
            return found
        if self._asked_from is not None:
            return self.trace.stack_since(self._asked_from)
        if (
            any(call)
            and now - self._since > LIMITS.stalls.overdue_looks * look_s
            and self.pidfd is not None
        ):
            self._asked_from = self.trace.bytes
            with contextlib.suppress(OSError):  # it is gone
                signal.pidfd_send_signal(self.pidfd.number, ASKED_BY)
        return ()

    def go_on(self) -> None:
        """Resume it if somebody has stopped it; to others that is nothing."""
        if self.pidfd is not None:
            with contextlib.suppress(OSError):  # it is gone
                signal.pidfd_send_signal(self.pidfd.number, signal.SIGCONT)

    def born(self, pid: int, pidfd: Descriptor) -> None:
        self.pidfd = pidfd
        self.worker.born(pid, pidfd)

    def close(self) -> None:
        """Let go of the life; in a child of the user's, too."""
        self.worker.over()
        self.sock.close()
        if self.pidfd is not None:
            self.pidfd.close()
        self.trace.close()
        self.shelf.clear()
