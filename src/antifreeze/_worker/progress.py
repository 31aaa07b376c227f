"""A worker's own witness: a thread that writes down where the worker is when it stands still.

1. Every two seconds, or sooner if calls may not last that long, it looks at the words that say
   which call the worker is in (`steps`). If that has not changed, it writes the worker's stack into
   the life's trace, if that is another than before. In a healthy run it writes nothing.
2. It needs the interpreter's lock for that. Should the worker hold the lock and not give it back,
   `faulthandler` writes instead, from a thread that needs no lock; each look puts that off.
3. It sends no signal: one would cut a sleep or a read of the user's code short.
"""

from __future__ import annotations

import contextlib
import faulthandler
import os
import sys
import threading
from types import FrameType

from .._transport.status import StatusLine

LOCKED_LOOKS = 1.5  # after so many times without a look somebody keeps the interpreter's lock
DEEPEST = 100  # frames of a stack
LONGEST = 1024 * 1024  # bytes of all stacks; then it begins anew


class Witness:
    """Watch the thread that makes it."""

    def __init__(self, status: StatusLine, trace: int, look_s: float) -> None:
        self._status, self._trace, self._look_s = status, trace, look_s
        self._worker = threading.get_ident()
        self._never = threading.Event()  # to sleep on
        self._written = b""  # the last stack
        # A crash in native code leaves its stack as well.
        faulthandler.enable(trace, all_threads=False)
        with contextlib.suppress(RuntimeError):  # the machine gives no thread
            threading.Thread(target=self._watch, name="antifreeze-witness", daemon=True).start()

    def _watch(self) -> None:
        before: tuple[int, int] | None = None
        while True:  # bounded by the life of the worker
            faulthandler.dump_traceback_later(
                LOCKED_LOOKS * self._look_s, repeat=True, file=self._trace
            )
            self._never.wait(self._look_s)
            call = self._status.call
            if call == before and any(call):
                self._write()
            before = call

    def _write(self) -> None:
        frame = sys._current_frames().get(self._worker)
        lines = ["Thread of the worker (most recent call first):"]
        while frame is not None and len(lines) <= DEEPEST:
            lines.append(_line(frame))
            frame = frame.f_back
        text = ("\n".join(lines) + "\n\n").encode(errors="replace")
        if text == self._written:
            return
        self._written = text
        with contextlib.suppress(OSError):  # no memory: then there is no stack
            if os.lseek(self._trace, 0, os.SEEK_CUR) > LONGEST:
                os.ftruncate(self._trace, 0)
                os.lseek(self._trace, 0, os.SEEK_SET)
            os.write(self._trace, text)


def _line(frame: FrameType) -> str:
    code = frame.f_code
    return f'  File "{code.co_filename}", line {frame.f_lineno} in {code.co_name}'
