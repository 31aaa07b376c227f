"""What this program tells who asks from outside (`antifreeze attach`): how its loaders are.

1. A socket without a file, named after the process, while there are loops; the kernel says who is
   at its other end, and only the same user gets an answer (and root).
2. Who asks gets one JSON text and is hung up on. Nothing is read from it: there is nothing to be
   told, and nothing to be broken. No data of the program is in it.
3. The thread that looks after loops answers, in passing (`_bystander`).
"""

from __future__ import annotations

import contextlib
import json
import os
import socket
import struct
from typing import TYPE_CHECKING, Any

from ._asked import address
from ._clock import monotonic
from ._core.commands import ExamineLife, LookAround
from ._core.events import ClockRang, LifeExamined, LivesSeen
from ._core.story import KEPT
from ._version import VERSION

if TYPE_CHECKING:
    from ._core.story import Entry
    from .iteration import LoaderIterator

AT_ONCE = 4  # who may wait for an answer
SEND_S = 0.2  # for who does not read
STORY = 12  # entries
FAULTS = 5


class Desk:
    """Where to ask. Used by one thread."""

    def __init__(self) -> None:
        self._socket: socket.socket | None = None
        self._owner = os.getpid()
        with contextlib.suppress(OSError):  # another of this name, or no sockets at all: no desk
            made = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
            try:
                made.bind(address(self._owner))
                made.listen(AT_ONCE)
                made.setblocking(False)
                self._socket = made
            except OSError:
                made.close()

    def __repr__(self) -> str:
        return f"<Desk {'closed' if self._socket is None else 'open'}>"

    def serve(self) -> None:
        """Answer whoever waits. Never waits for anybody longer than a moment."""
        if self._socket is None or os.getpid() != self._owner:
            return
        for _ in range(AT_ONCE):
            try:
                asker, _ = self._socket.accept()
            except OSError:  # nobody
                return
            with asker, contextlib.suppress(OSError):
                if _may_ask(asker):
                    asker.settimeout(SEND_S)
                    # The program may have SIGPIPE end it, and who asked may have hung up.
                    asker.sendall(json.dumps(told()).encode(), socket.MSG_NOSIGNAL)

    def close(self) -> None:
        if self._socket is not None:
            self._socket.close()
            self._socket = None


def _may_ask(asker: socket.socket) -> bool:
    said = asker.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, struct.calcsize("3i"))
    _, user, _ = struct.unpack("3i", said)
    return user in (os.getuid(), 0)


def told() -> dict[str, Any]:
    """Say how all loaders are that somebody loops over."""
    from .iteration import at_work, settle

    settle()
    return {
        "antifreeze": VERSION,
        "pid": os.getpid(),
        "loaders": [_of_loop(each) for each in at_work()],
    }


def _of_loop(iterator: LoaderIterator) -> dict[str, Any]:
    supervisor = iterator.snapshot().supervisor
    return {
        "name": iterator.entry.profile.name,
        "sentence": iterator.entry.explain().sentence,
        "run": supervisor.run.value,
        "loop": supervisor.loop.value,
        "delivered": supervisor.progress.delivered,
        "restarts": supervisor.restarts,
        "workers": [
            {
                "worker": seat.seat,
                "state": seat.state.value,
                "life": seat.life_state.value if seat.life_state is not None else "none",
                "lives": seat.lives,
                "brought": seat.brought,
                "working_on": list(seat.working_on[:3]),
            }
            for seat in supervisor.seats
        ],
        "pids": [worker.pid for worker in iterator._workers],
        "faults": supervisor.faults_seen,
        "latest_faults": [fault.kind.value for fault in supervisor.faults[-FAULTS:]],
        "story": _story(iterator),
    }


def _is_routine(entry: Entry) -> bool:
    """Say that an entry is of what is done every second, whatever happens: to look at the lives."""
    event = isinstance(entry.event, ClockRang | LivesSeen | LifeExamined)
    return event and all(isinstance(each, LookAround | ExamineLife) for each in entry.commands)


def _story(iterator: LoaderIterator) -> list[str]:
    """Tell the last things that happened, by kind: what is in them may be the user's."""
    now, lines = monotonic(), []
    for entry in [each for each in iterator.latest(KEPT) if not _is_routine(each)][-STORY:]:
        done = ", ".join(type(each).__name__ for each in entry.commands)
        seat = getattr(entry.event, "seat", None)
        who = "" if seat is None else f" of worker {seat}"
        lines.append(
            f"{now - entry.at:.1f} s ago: {type(entry.event).__name__}{who}"
            + (f" -> {done}" if done else "")
        )
    return lines
