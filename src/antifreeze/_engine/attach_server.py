"""What this program tells `antifreeze attach`: how its loaders are, as JSON.

No data of the program is in it. The thread that looks after loops answers, in passing
(`main_process_monitor`); who may ask, and how, is the mailbox's concern (`attach_mailbox`).
"""

from __future__ import annotations

import json
import os
from typing import TYPE_CHECKING, Any

from .._core.commands import ExamineLife, LookAround
from .._core.events import ClockRang, LifeExamined, LivesSeen
from .._core.limits import LIMITS
from .._linux.clock import monotonic
from .._version import VERSION
from .attach_mailbox import Mailbox

if TYPE_CHECKING:
    from .._core.inspection.event_log import Entry
    from .iterator import LoaderIterator


class AttachServer:
    """Answer who asks. Used by one thread."""

    def __init__(self) -> None:
        self._owner = os.getpid()
        self._mailbox = Mailbox()

    def serve(self) -> None:
        """Answer, if somebody has asked. Never waits for anybody."""
        if os.getpid() == self._owner and self._mailbox.is_asked:
            self._mailbox.answer(json.dumps(told()).encode())

    def close(self) -> None:
        self._mailbox.close()

    def __repr__(self) -> str:
        return f"<AttachServer {self._mailbox!r}>"


def told() -> dict[str, Any]:
    """Say how all loaders are that somebody loops over."""
    from .iterator import at_work, settle

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
        "latest_faults": [fault.kind.value for fault in supervisor.faults[-LIMITS.attach.faults :]],
        "story": _event_log(iterator),
    }


def _is_routine(entry: Entry) -> bool:
    """Say that an entry is of what is done every second, whatever happens: to look at the lives."""
    event = isinstance(entry.event, ClockRang | LivesSeen | LifeExamined)
    return event and all(isinstance(each, LookAround | ExamineLife) for each in entry.commands)


def _event_log(iterator: LoaderIterator) -> list[str]:
    """Tell the last things that happened, by kind: what is in them may be the user's."""
    now, lines = monotonic(), []
    entries = [each for each in iterator.latest_events() if not _is_routine(each)]
    for entry in entries[-LIMITS.attach.event_log_entries :]:
        done = ", ".join(type(each).__name__ for each in entry.commands)
        seat = getattr(entry.event, "seat", None)
        who = "" if seat is None else f" of worker {seat}"
        lines.append(
            f"{now - entry.at:.1f} s ago: {type(entry.event).__name__}{who}"
            + (f" -> {done}" if done else "")
        )
    return lines
