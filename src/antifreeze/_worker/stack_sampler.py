"""A worker's own witness: a thread that writes down where the worker is when it stands still.

1. Every second, or sooner if calls may not last that long, it looks at the words that say
   which call the worker is in (`worker_phases`). If that has not changed, it writes the worker's
   stack into the life's trace, if that is another than before. In a healthy run it writes nothing.
2. It needs the interpreter's lock for that. If the worker holds the lock and does not give it back,
   the main process, which sees no stack, may ask for one by a signal that `faulthandler` answers.
   It does so only then: a signal would cut a sleep or a read of healthy code short. (A dump by
   `faulthandler`'s own timer reads frames that are in use, and has crashed healthy workers.)
3. Twenty times a second, while the worker has something to do, it notes which sample that is, and
   now and then the line of the program that it is in (`line_profiler`).
"""

from __future__ import annotations

import contextlib
import faulthandler
import os
import signal
import sys
import threading
import traceback
from types import FrameType

from .._core.limits import LIMITS
from .._linux.clock import monotonic
from .._loading.line_profiler import (
    LINE_EVERY,
    LOOK_S,
    SamplingProfiler,
    at_any_moment,
)
from .._loading.observations import Places
from .._transport.stack_file import ASKED_BY, EXIT, header
from .._transport.status_board import StatusLine
from . import parent_watch

_TIMERS = (signal.ITIMER_REAL, signal.ITIMER_VIRTUAL, signal.ITIMER_PROF)


class StackSampler:
    """Watch the thread that makes it."""

    def __init__(self, status: StatusLine, trace: int, look_s: float) -> None:
        self._status, self._trace, self._look_s = status, trace, look_s
        self._worker = threading.get_ident()
        self._wake, self._never = threading.Event(), threading.Event()  # to sleep on
        self._rests = False  # until it is woken: the worker has nothing to do
        self._roused_at = 0.0
        self._written = b""  # the last stack
        self.looks = SamplingProfiler()
        self._told_at = monotonic()
        with contextlib.suppress(OSError, RuntimeError, ValueError):  # then there is no such stack
            faulthandler.register(ASKED_BY, trace, all_threads=False)
            if not faulthandler.is_enabled():  # else the program has its own place for crashes
                faulthandler.enable(trace, all_threads=False)
                os.register_at_fork(after_in_child=faulthandler.disable)
        with contextlib.suppress(RuntimeError):  # the machine gives no thread
            threading.Thread(target=self._watch, name="antifreeze-witness", daemon=True).start()

    def __repr__(self) -> str:
        ticket, step = self._status.call
        return f"<Witness every {self._look_s:g} s, ticket {ticket}, step {step}>"

    def rouse(self) -> None:
        """Know that the worker has something to do."""
        if self._rests:
            self._roused_at = monotonic()
            self._wake.set()

    def _watch(self) -> None:
        parent_watch.name_thread()
        before: tuple[int, int] | None = None
        turn = 0
        look_at = monotonic() + self._look_s
        while True:  # bounded by the life of the worker
            self._rests = True  # first: who has written down what it does then sees it
            self._rests = not any(self._status.call)
            pause_s = min(LOOK_S, self._look_s)
            if self._rests:
                roused = self._wake.wait(self._look_s)
                self._wake.clear()
                self._rests = False
                # It may have come to this only now, where the first sample keeps the interpreter's
                # lock: then the look is due, or the sample is over before there is any.
                pause_s -= monotonic() - self._roused_at if roused else 0.0
            if pause_s > 0.0:
                self._never.wait(pause_s)
            call = self._status.call
            self.looks.note(*call)
            turn = (turn + 1) % LINE_EVERY
            if turn == 0:
                at_any_moment()
                _, step = self._status.call
                self.looks.note_line(step, sys._current_frames().get(self._worker))
            now = monotonic()
            if now < look_at:
                continue
            look_at = now + self._look_s
            if call == before and any(call):
                self._write(call)
            before = call

    @property
    def due(self) -> bool:
        """Say whether there is something to tell."""
        return self.looks.any_places and monotonic() - self._told_at > LIMITS.looks.hot_lines_s

    def places(self) -> Places | None:
        """Give, once, the lines that samples were found in."""
        self._told_at = monotonic()
        found = self.looks.take_places()
        return Places(found) if found else None

    def note_exit(self, error: SystemExit) -> None:
        """Write down where SystemExit was raised. By the worker itself, which is about to end."""
        frames = list(traceback.walk_tb(error.__traceback__))
        lines = [
            _line(frame, line) for frame, line in reversed(frames[-LIMITS.looks.stack_frames :])
        ]
        self._put([EXIT, *lines])

    def _write(self, call: tuple[int, int]) -> None:
        frame = sys._current_frames().get(self._worker)
        lines = [header(call, timer=_a_timer_is_set())]
        while frame is not None and len(lines) <= LIMITS.looks.stack_frames:
            lines.append(_line(frame, frame.f_lineno))
            frame = frame.f_back
        self._put(lines)

    def _put(self, lines: list[str]) -> None:
        text = ("\n".join(lines) + "\n\n").encode(errors="replace")
        if text == self._written:
            return
        self._written = text
        with contextlib.suppress(OSError):  # no memory: then there is no stack
            if os.lseek(self._trace, 0, os.SEEK_CUR) > LIMITS.looks.stack_file_bytes:
                os.ftruncate(self._trace, 0)
                os.lseek(self._trace, 0, os.SEEK_SET)
            os.write(self._trace, text)


def _a_timer_is_set() -> bool:
    """Whether the worker has asked for a signal, which may end what it waits for."""
    return any(signal.getitimer(each)[0] for each in _TIMERS)


def _line(frame: FrameType, line: int) -> str:
    code = frame.f_code
    return f'  File "{code.co_filename}", line {line} in {code.co_name}'
