"""Descriptors as objects: closed with their last holder, and in a forked child.

A child that the user forks, or a worker, must not keep our ends open: a channel would never close,
memory would never be freed.
"""

from __future__ import annotations

import itertools
import os
import socket
import struct
import weakref
from typing import Protocol

_NUMBER = struct.Struct("i")


class Closable(Protocol):
    def close(self) -> None: ...


# By numbers that mean nothing. No WeakSet: that has Python code called for each thing that is
# collected, and the interpreter drops what is raised in there, also for Ctrl-C.
_of_this_process: dict[int, weakref.ref[Closable]] = {}
_numbers = itertools.count()
_ROOM = 64  # references to things that are gone, at least, before they are looked for
_room = [_ROOM]


def keep_from_children(thing: Closable) -> None:
    """Have this closed in every process forked from this one."""
    _of_this_process[next(_numbers)] = weakref.ref(thing)
    if len(_of_this_process) > _room[0]:
        for number, reference in list(_of_this_process.items()):
            if reference() is None:
                _of_this_process.pop(number, None)  # another thread may look as well
        _room[0] = 2 * len(_of_this_process) + _ROOM


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
    for reference in list(_of_this_process.values()):
        if (thing := reference()) is not None:
            thing.close()


os.register_at_fork(after_in_child=_close_in_child)
