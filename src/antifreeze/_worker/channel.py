"""The worker's end of its private channel."""

from __future__ import annotations

import pickle
import select
import socket
from collections import deque
from typing import Any

from .._core.accounts import Timings
from .._core.events import Outcome
from .._transport import parcels
from .._transport.framing import Frame, FrameReader, Kind, prefix
from .._transport.packing import Packed

CHUNK = 256 * 1024  # bytes a read


class MainGone(Exception):
    """The main process closed the channel."""


class Channel:
    """Read tickets, send parcels. Blocking; the guard ends a worker whose main process is gone."""

    def __init__(self, sock: socket.socket) -> None:
        self._sock = sock
        self._reader = FrameReader()
        self._inbox: deque[Frame] = deque()
        self._poller = select.poll()
        self._poller.register(sock, select.POLLIN)

    def receive(self) -> tuple[Kind, Any]:
        """Wait for the next message. A new epoch makes earlier tickets void: they are skipped."""
        while not self._inbox:
            self._read()
        while self._poller.poll(0):  # see what else has come before beginning anything
            self._read()
        newest = max(
            (i for i, frame in enumerate(self._inbox) if frame.kind is not Kind.TICKET), default=0
        )
        for _ in range(newest):
            self._inbox.popleft()
        frame = self._inbox.popleft()
        body = pickle.loads(frame.body) if frame.body else None
        return frame.kind, body

    def say(self, kind: Kind, body: Any = None) -> None:
        data = pickle.dumps(body, protocol=5)
        self._send([prefix(kind, len(data)), data])

    def send_parcel(
        self, number: int, outcome: Outcome, timings: Timings, packed: Packed | None
    ) -> None:
        parts, descriptor = parcels.encode(number, outcome, timings, packed)
        with parcels.closing(descriptor):
            self._send(parts, descriptor)

    def _read(self) -> None:
        large = self._reader.receive_into()
        if large is not None:
            count = self._sock.recv_into(large)
            if not count:
                raise MainGone
            self._inbox.extend(self._reader.advance(count))
            return
        data = self._sock.recv(CHUNK)
        if not data:
            raise MainGone
        self._inbox.extend(self._reader.feed(data, []))

    def _send(self, parts: list[bytes | memoryview], descriptor: int | None = None) -> None:
        try:
            views = [memoryview(part).cast("B") for part in parts if len(part)]
            if descriptor is not None:
                sent = socket.send_fds(self._sock, views, [descriptor])
            else:
                sent = self._sock.sendmsg(views)
            for view in views:
                if sent >= view.nbytes:
                    sent -= view.nbytes
                    continue
                self._sock.sendall(view[sent:])
                sent = 0
        except (BrokenPipeError, ConnectionResetError) as error:
            raise MainGone from error
