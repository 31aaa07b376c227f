"""The worker's end of its private channel."""

from __future__ import annotations

import pickle
import select
import socket
import threading
from collections import deque
from collections.abc import Callable
from itertools import islice
from typing import Any

from .._core.limits import LIMITS
from .._transport.framing import CHUNK, OVERTAKES, Frame, FrameReader, Kind, prefix

JOINED = 1024 * 1024  # bytes; a longer message is sent piece by piece


class MainGone(Exception):
    """The main process closed the channel."""


class NothingSent(Exception):
    """The kernel refused a descriptor: too many of them are under way (ETOOMANYREFS)."""


class Channel:
    """Read tickets, send parcels. Blocking; the guard ends a worker whose main process is gone."""

    def __init__(self, sock: socket.socket) -> None:
        sock.settimeout(None)  # whatever socket.setdefaulttimeout the program has called
        self._sock = sock
        self._pause_ms = LIMITS.streams.pause_ms
        self._reader = FrameReader()
        self._inbox: deque[Frame] = deque()
        self._overtakes = OVERTAKES
        self._sending = threading.Lock()  # a message is sent whole (see `outbox`)
        self._poller = select.poll()
        self._poller.register(sock, select.POLLIN)

    def keep_order(self) -> None:
        """Skip no ticket at the start of an epoch. For streams, and where draws are torch's: what a
        worker loads or draws next depends on all that it has loaded so far, so it loads what it
        was asked for, as torch's does."""
        self._overtakes = frozenset({Kind.STOP})

    def receive(
        self, before_waiting: Callable[[], None], in_pause: Callable[[], None]
    ) -> tuple[Kind, memoryview]:
        """Return the next message, or wait for it. A new epoch makes earlier tickets void: they are
        skipped. `in_pause` is called when nothing has come for a while, in a stream."""
        self.overtaken()
        if not self._inbox:
            before_waiting()
            if self._overtakes is not OVERTAKES and not self._poller.poll(self._pause_ms):
                in_pause()
            while not self._inbox:
                self._read()
            self.overtaken()
        frame = self._inbox.popleft()
        return frame.kind, frame.body

    def overtaken(self) -> bool:
        """Say whether something has come that makes all tickets before it void."""
        while self._poller.poll(0):
            self._read()
        places = [place for place, frame in enumerate(self._inbox) if frame.kind in self._overtakes]
        if not places:
            return False
        newest = places[-1]
        kept = [frame for frame in islice(self._inbox, newest) if frame.kind is Kind.EXPLAIN]
        for _ in range(newest):
            self._inbox.popleft()
        self._inbox.extendleft(reversed(kept))
        return True

    def say(self, kind: Kind, body: Any = None) -> None:
        self.send(kind, pickle.dumps(body, protocol=5))

    def send(self, kind: Kind, body: bytes, descriptor: int | None = None) -> None:
        """Send one message, and a descriptor with its first byte. Raises NothingSent if the
        kernel does not take the descriptor."""
        with self._sending:
            self._send(kind, body, descriptor)

    def _send(self, kind: Kind, body: bytes, descriptor: int | None) -> None:
        head = prefix(kind, len(body), 0 if descriptor is None else 1)
        pieces = [head + body] if len(body) <= JOINED else [head, body]
        try:
            first = memoryview(pieces[0])
            if descriptor is not None:
                first = first[self._send_with(descriptor, first) :]
            self._sock.sendall(first)
            for piece in pieces[1:]:
                self._sock.sendall(piece)
        except (BrokenPipeError, ConnectionResetError) as error:
            raise MainGone from error

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

    def _send_with(self, descriptor: int, piece: memoryview) -> int:
        try:
            return socket.send_fds(self._sock, [piece], [descriptor])
        except (BrokenPipeError, ConnectionResetError):
            raise
        except OSError as error:
            raise NothingSent from error
