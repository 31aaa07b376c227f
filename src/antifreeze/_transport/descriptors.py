"""Descriptors as objects: closed with their last holder, and in a forked child.

A child that the user forks, or a worker, must not keep our ends open: a channel would never close,
memory would never be freed.
"""

from __future__ import annotations

import os
import socket
import struct
import weakref
from typing import Protocol

_NUMBER = struct.Struct("i")


class Closable(Protocol):
    def close(self) -> None: ...


_of_this_process: weakref.WeakSet[Closable] = weakref.WeakSet()


def keep_from_children(thing: Closable) -> None:
    """Have this closed in every process forked from this one."""
    _of_this_process.add(thing)


class Descriptor:
    """One open descriptor, owned."""

    __slots__ = ("__weakref__", "_finalizer", "number")

    def __init__(self, number: int) -> None:
        self.number = number
        self._finalizer = weakref.finalize(self, os.close, number)
        self._finalizer.atexit = False
        keep_from_children(self)

    def close(self) -> None:
        """Close it, once."""
        self._finalizer()


def received(riders: list[tuple[int, int, bytes]]) -> list[Descriptor]:
    """Take the descriptors that came with a message. (`socket.recv_fds` is slow without any.)"""
    found: list[Descriptor] = []
    for level, kind, data in riders:
        if level == socket.SOL_SOCKET and kind == socket.SCM_RIGHTS:
            whole = len(data) - len(data) % _NUMBER.size
            found += [Descriptor(number) for (number,) in _NUMBER.iter_unpack(data[:whole])]
    return found


def _close_in_child() -> None:
    for thing in list(_of_this_process):
        thing.close()


os.register_at_fork(after_in_child=_close_in_child)
