"""A zygote that opens what it was sent: where it is, if that takes long.

It runs the user's code meanwhile: imports, `__setstate__`. It has no witness, since it must keep
its one thread: it is asked for its stack by a signal, now and then, and only when it takes long.
"""

from __future__ import annotations

import contextlib
import faulthandler
import signal

from ..._core.health.stall_detection import StackLine
from ..._core.limits import LIMITS
from ..._linux.clock import monotonic
from ..._transport.descriptors import Descriptor
from ..._transport.stack_file import ASKED_BY, StackFile


class Opening:
    """One opening, for the main process."""

    def __init__(self) -> None:
        self.trace = StackFile()
        self.pidfd: Descriptor | None = None  # when it is there
        self._next: float | None = None  # question

    def stack(self, look_s: float) -> tuple[StackLine, ...]:
        """Give the newest stack, if there is one; ask for another if it is time to."""
        now = monotonic()
        if self._next is None:
            self._next = now + LIMITS.stalls.asked_looks * look_s
        found = self.trace.stack_since(0)
        if now >= self._next and self.pidfd is not None:
            self._next = now + LIMITS.stalls.asked_looks * look_s
            with contextlib.suppress(OSError):  # it is gone
                signal.pidfd_send_signal(self.pidfd.number, ASKED_BY)
        return found

    def close(self) -> None:
        self.trace.close()

    def __repr__(self) -> str:
        return f"<Opening, {self.trace!r}>"


def answer(trace: int) -> None:
    """Have this process, a zygote, write its stack when it is asked. It does so for as long as it
    lives: a question may come a moment late."""
    signal.signal(ASKED_BY, signal.SIG_IGN)  # a question without an answer must not end it
    with contextlib.suppress(OSError, RuntimeError, ValueError):  # then there is no stack
        faulthandler.register(ASKED_BY, trace, all_threads=False)
