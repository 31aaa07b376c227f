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
JOINED = 1024 * 1024  # bytes; a longer message is sent piece by piece


class MainGone(Exception):
    """The main process closed the channel."""


class NothingSent(Exception):
    """The kernel refused a descriptor: too many of them are under way (ETOOMANYREFS)."""


class Channel:
    """Read tickets, send parcels. Blocking; the guard ends a worker whose main process is gone."""

    def __init__(self, sock: socket.socket) -> None:
        self._sock = sock
        self._reader = FrameReader()
        self._inbox: deque[Frame] = deque()
        self._poller = select.poll()
        self._poller.register(sock, select.POLLIN)

    def receive(self) -> tuple[Kind, memoryview]:
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
        return frame.kind, frame.body

    def say(self, kind: Kind, body: Any = None) -> None:
        data = pickle.dumps(body, protocol=5)
        self._send([prefix(kind, len(data)), data])

    def send_parcel(
        self, number: int, outcome: Outcome, timings: Timings, packed: Packed | None
    ) -> None:
        parts, descriptor = parcels.encode(number, outcome, timings, packed)
        with parcels.closing(descriptor):
            try:
                self._send(parts, descriptor)
            except NothingSent:
                assert packed is not None
                packed.keep_all_inside()
                parts, _ = parcels.encode(number, outcome, timings, packed)
                self._send(parts)

    def _read(self) -> None:
        try:
            large = self._reader.receive_into()
            count = self._sock.recv_into(large) if large else 0
            data = b"" if large else self._sock.recv(CHUNK)
        except ConnectionResetError as error:
            raise MainGone from error
        if not (count or data):
            raise MainGone
        frames = self._reader.advance(count) if large else self._reader.feed(data, [])
        self._inbox.extend(frames)

    def _send(self, parts: list[bytes | memoryview], descriptor: int | None = None) -> None:
        """Send one frame, and a descriptor with its first byte."""
        size = sum(memoryview(part).nbytes for part in parts)
        # One piece where that is cheap: a call takes 1024 of them, and a batch may have more.
        joined = [b"".join(parts)] if size <= JOINED else parts
        pieces = [memoryview(part) for part in joined]
        try:
            if descriptor is not None:
                pieces[0] = pieces[0][self._send_with(descriptor, pieces[0]) :]
            for piece in pieces:
                self._sock.sendall(piece)
        except (BrokenPipeError, ConnectionResetError) as error:
            raise MainGone from error

    def _send_with(self, descriptor: int, piece: memoryview) -> int:
        try:
            return socket.send_fds(self._sock, [piece], [descriptor])
        except (BrokenPipeError, ConnectionResetError):
            raise
        except OSError as error:
            raise NothingSent from error
