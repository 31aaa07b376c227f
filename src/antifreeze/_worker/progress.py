"""A worker's own witness: a thread that writes down where the worker is when it stands still.

1. Every second, or sooner if calls may not last that long, it looks at the words that say
   which call the worker is in (`steps`). If that has not changed, it writes the worker's stack into
   the life's trace, if that is another than before. In a healthy run it writes nothing.
2. It needs the interpreter's lock for that. If the worker holds the lock and does not give it back,
   the main process, which sees no stack, may ask for one by a signal that `faulthandler` answers.
   It does so only then: a signal would cut a sleep or a read of healthy code short. (A dump by
   `faulthandler`'s own timer reads frames that are in use, and has crashed healthy workers.)
3. Ten times a second, while the worker is in a sample, it notes the line of the program that it is
   in. Counted, these tell where samples take their time.
"""

from __future__ import annotations

import contextlib
import faulthandler
import functools
import os
import sys
import threading
from collections import Counter
from types import FrameType

from .._clock import monotonic
from .._core.steps import SAMPLE
from .._core.traps import Places
from .._transport.status import StatusLine
from .._transport.trace import ASKED_BY, header
from . import guard

DEEPEST = 200  # frames of a stack
LONGEST = 1024 * 1024  # bytes of all stacks; then it begins anew
NOTE_S = 0.1  # between two notes of where samples are: rarely enough to cost nothing
IDLE_S = 0.2  # while the worker has nothing to do
TELL_S = 2.0  # between two messages about that
LINES = 50  # counted between them


class Witness:
    """Watch the thread that makes it."""

    def __init__(self, status: StatusLine, trace: int, look_s: float) -> None:
        self._status, self._trace, self._look_s = status, trace, look_s
        self._worker = threading.get_ident()
        self._never = threading.Event()  # to sleep on
        self._written = b""  # the last stack
        self._places: Counter[str] = Counter()
        self._stood = (0, 0, 0.0)  # the ticket and step that lasted longest of late, and how long
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

    def _watch(self) -> None:
        guard.name_thread()
        before: tuple[int, int] | None = None
        standing, since = (0, 0), monotonic()
        look_at = since + self._look_s
        while True:  # bounded by the life of the worker
            idle = not any(self._status.call)
            self._never.wait(min(IDLE_S if idle else NOTE_S, self._look_s))
            call, now = self._status.call, monotonic()
            if call != standing:
                standing, since = call, now
            elif now - since > self._stood[2] or call[0] != self._stood[0]:
                self._stood = (*call, now - since)
            if call[1] >= SAMPLE and len(self._places) < LINES:
                self._note()
            if now < look_at:
                continue
            look_at = now + self._look_s
            if call == before and any(call):
                self._write(call)
            before = call

    def slowest(self, ticket: int) -> tuple[float, int] | None:
        """Give how long the slowest sample of a ticket took, and its place; None if none stood out
        (a tenth of a second)."""
        number, step, seconds = self._stood
        return (seconds, step - SAMPLE) if number == ticket and step >= SAMPLE else None

    @property
    def due(self) -> bool:
        """Say whether there is something to tell."""
        return bool(self._places) and monotonic() - self._told_at > TELL_S

    def places(self) -> Places | None:
        """Give, once, the lines that samples were found in."""
        self._told_at = monotonic()
        found, self._places = self._places, Counter()
        return Places(tuple(found.most_common())) if found else None

    def _note(self) -> None:
        frame = sys._current_frames().get(self._worker)
        if (place := place_of(frame)) is not None:
            self._places[place] += 1

    def _write(self, call: tuple[int, int]) -> None:
        frame = sys._current_frames().get(self._worker)
        lines = [header(call)]
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


def place_of(frame: FrameType | None) -> str | None:
    """Give the line of the program that a thread is in: the innermost that is not of a library;
    if there is none, the innermost that is not ours."""
    innermost: str | None = None
    for _ in range(DEEPEST):
        if frame is None:
            break
        file = frame.f_code.co_filename
        if file.startswith(_OURS):
            break  # what is further out called us
        if not file.startswith("<"):
            place = f"{os.path.basename(file)}:{frame.f_lineno} in {frame.f_code.co_name}"
            if not _of_library(file):
                return place
            innermost = innermost or place
        frame = frame.f_back
    return innermost


_OURS = os.path.dirname(os.path.dirname(os.path.abspath(__file__))) + os.sep


@functools.cache
def _of_library(file: str) -> bool:
    return "site-packages" in file or "dist-packages" in file or file.startswith(_LIBRARIES)


_LIBRARIES = os.path.dirname(os.__file__) + os.sep


def _line(frame: FrameType) -> str:
    code = frame.f_code
    return f'  File "{code.co_filename}", line {frame.f_lineno} in {code.co_name}'
