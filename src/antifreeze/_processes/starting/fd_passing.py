"""Messages between processes, with descriptors that ride along."""

from __future__ import annotations

import pickle
import select
import socket
from collections.abc import Sequence

from ..._core.limits import LIMITS

RIDERS = 200  # descriptors in one message, at most: the kernel takes 253
LARGEST = 1024 * 1024  # bytes of a message: it may hold the whole environment


class SourceGone(OSError):
    """Whoever was to be asked is gone. That is news; who asks again asks another one."""


def send(sock: socket.socket, data: bytes, riders: Sequence[int]) -> None:
    """Send a message, and descriptors with it. Raises SourceGone if nobody takes it."""
    try:
        try:
            socket.send_fds(sock, [data], riders)
        except BlockingIOError:  # very many at once: they are taken one by one
            poller = select.poll()
            poller.register(sock, select.POLLOUT)
            poller.poll(1000 * LIMITS.sending.message_s)
            socket.send_fds(sock, [data], riders)
    except (BlockingIOError, BrokenPipeError, ConnectionResetError) as error:
        raise SourceGone from error


def send_many(sock: socket.socket, riders: Sequence[int]) -> None:
    """Send descriptors, as many as there are. Raises SourceGone."""
    for start in range(0, len(riders), RIDERS):
        send(sock, pickle.dumps(len(riders)), riders[start : start + RIDERS])


def receive(sock: socket.socket) -> tuple[bytes, list[int]]:
    """Wait for a message, and what rides with it; no data: nobody can send one any more."""
    try:
        data, riders, _, _ = socket.recv_fds(sock, LARGEST, 253, socket.MSG_CMSG_CLOEXEC)
    except ConnectionResetError:
        return b"", []
    return data, riders


def receive_many(sock: socket.socket) -> list[int]:
    """Wait for what `send_many` sends. Raises EOFError if it cannot come any more."""
    found: list[int] = []
    expected = 1
    while len(found) < expected:
        data, more = receive(sock)
        if not data:
            raise EOFError
        expected = pickle.loads(data)
        found += more
    return found
