"""One life as the main process sees it, and what can happen to it while the loop is away."""

from __future__ import annotations

import contextlib
import multiprocessing.process
import os
import select
import socket
import struct
from collections import deque
from collections.abc import Iterable, Iterator
from dataclasses import replace
from multiprocessing.process import BaseProcess

from .._core.tickets import Errand
from .._transport.descriptors import Descriptor, keep_from_children
from .._transport.framing import CHUNK, Frame, FrameReader, Kind, prefix
from .._transport.shelf import Returns, Shelf
from .._worker.spec import WorkerSpec

_DESCRIPTOR = struct.Struct("i")
_RIDERS = socket.CMSG_SPACE(_DESCRIPTOR.size)  # room for the one descriptor a message may carry


class Line:
    """One life as the main process sees it: its process, its channel, its outbox."""

    def __init__(
        self, spec: WorkerSpec, process: BaseProcess, sock: socket.socket, returns: Returns
    ) -> None:
        self.seat, self.life, self.status = spec.seat, spec.life, spec.status
        self.process, self.sock = process, sock
        self.shelf = Shelf(spec.seat, spec.life, returns)
        self.reader = FrameReader()
        self.outbox: deque[memoryview] = deque()
        self._torn = False  # a read was not finished
        self.pidfd = Descriptor(os.pidfd_open(process.pid or 0))
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
            descriptors = _descriptors(riders) if riders else []
            if not data:
                raise EOFError
            yield from self.reader.feed(data, descriptors)
            if len(data) < CHUNK and not to_the_end and not self.reader.receive_into():
                return

    def renewed(self, errand: Errand) -> Errand:
        """Ask for a new slab for as long as one is needed: the life may skip tickets."""
        lease = errand.lease
        if lease.renewed:
            self.shelf.spoil(lease.slot)
        elif lease.slot in self.shelf.lacking:
            return Errand(errand.ticket, replace(lease, renewed=True))
        return errand

    def close(self) -> None:
        """Let go of the life. In a child of the user's too, where multiprocessing would end at
        exit what it takes for the child's own processes."""
        self.sock.close()
        self.pidfd.close()
        self.shelf.clear()
        multiprocessing.process._children.discard(self.process)  # type: ignore[attr-defined]


def _descriptors(riders: list[tuple[int, int, bytes]]) -> list[Descriptor]:
    """Take the descriptors that came with a message. (`socket.recv_fds` is slow without any.)"""
    found: list[Descriptor] = []
    for level, kind, data in riders:
        if level == socket.SOL_SOCKET and kind == socket.SCM_RIGHTS:
            whole = len(data) - len(data) % _DESCRIPTOR.size
            found += [Descriptor(number) for (number,) in _DESCRIPTOR.iter_unpack(data[:whole])]
    return found


class AwayWatch:
    """Where a thread waits for what should not wait for the loop: the end of a life, and room in
    a channel for the rest of a message."""

    def __init__(self) -> None:
        self._parcels = False  # wait for parcels, too
        self._ended = Descriptor(os.eventfd(0, os.EFD_CLOEXEC | os.EFD_NONBLOCK))
        # Not `poll`: what is registered while the thread waits counts at once.
        self._all = select.epoll()
        self._end_only = select.poll()
        self._all.register(self._ended.number, select.EPOLLIN)
        self._end_only.register(self._ended.number, select.POLLIN)
        keep_from_children(self)

    def look_for_parcels(self, lines: Iterable[Line]) -> None:
        self._parcels = True
        for line in lines:
            self.mind(line)

    def add(self, line: Line) -> None:
        self._all.register(line.pidfd.number, select.EPOLLIN)
        self.mind(line)

    def mind(self, line: Line) -> None:
        """Look at a life's channel for as long as there is a reason to."""
        wanted = (select.EPOLLIN if self._parcels else 0) | (select.EPOLLOUT if line.outbox else 0)
        self.remove(line.sock.fileno())
        if wanted:
            self._all.register(line.sock.fileno(), wanted)

    def remove(self, *descriptors: int) -> None:
        for number in descriptors:
            with contextlib.suppress(OSError, ValueError):  # not looked at, or all is closed
                self._all.unregister(number)

    def wait(self, timeout_s: float) -> None:
        with contextlib.suppress(ValueError):  # closed meanwhile: whoever waits will see it
            self._all.poll(timeout_s)

    def pause(self, timeout_s: float) -> None:
        self._end_only.poll(1000 * timeout_s)

    def end(self) -> None:
        os.eventfd_write(self._ended.number, 1)

    def close(self) -> None:
        self._all.close()
        self._ended.close()
