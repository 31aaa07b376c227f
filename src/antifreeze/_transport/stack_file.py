"""The file in which a life leaves its stack: written in the worker, read by the main process.

It has no name and lies in memory, so it can be read when the worker is gone, and goes with its last
holder. Stacks are in the form of `faulthandler`, whoever wrote them.
"""

from __future__ import annotations

import os
import re
import signal

from .._core.health.stall_detection import StackLine
from .descriptors import Descriptor
from .own_frames import AROUND_USER_CODE

NAME = "antifreeze-trace"
ASKED_BY = signal.SIGRTMIN + 11  # by this signal a worker that keeps the interpreter's lock
READ = 256 * 1024  # bytes from its end
FATAL = "Fatal Python error"
EXIT = "SystemExit (most recent call first):"
# From Python 3.14 on the stack of a crash is followed by that of its C code, in another form.
_BLOCK = re.compile(
    r"^(?!Current thread's C stack trace).*\(most recent call first\):$", re.MULTILINE
)
_FRAME = re.compile(r'^  File "(.*)", line (\d+) in (.*)$', re.MULTILINE)
_FOLDERS = "|".join(each.replace("/", r"[/\\]") for each in AROUND_USER_CODE)
_OURS = re.compile(rf"[/\\](?:{_FOLDERS})(?:\w+[/\\])*\w+\.py$")


def header(call: tuple[int, int], *, timer: bool = False) -> str:
    """Return which call the stack that follows is of. `timer`: a signal is due in it."""
    due = ", with a timer" if timer else ""
    return f"Worker in step {call[1]} of ticket {call[0]}{due} (most recent call first):"


class StackFile:
    """One such file, for the main process."""

    def __init__(self) -> None:
        self._descriptor = Descriptor(os.memfd_create(NAME, os.MFD_CLOEXEC))

    @property
    def number(self) -> int:
        return self._descriptor.number

    @property
    def bytes(self) -> int:
        """Count what was written to it: that is no work of the life's own."""
        return os.fstat(self.number).st_size

    def stack(self, call: tuple[int, int]) -> tuple[StackLine, ...]:
        """Return the newest stack of a call, innermost first, as far as it is the user's or a
        library's; nothing if none was written."""
        return stack_after(self._read(), header(call), header(call, timer=True))

    def has_timer(self, call: tuple[int, int]) -> bool:
        """Whether a timer was set when the newest stack of a call was written."""
        text = self._read()
        return text.rfind(header(call, timer=True)) > text.rfind(header(call))

    def stack_since(self, start: int) -> tuple[StackLine, ...]:
        """Give the newest stack that was written from a place on, of whatever call."""
        return stack_after(self._read(start))

    def last_words(self) -> tuple[StackLine, ...]:
        """Give the stack of a crash, if the interpreter left one."""
        _, found, after = self._read().rpartition(FATAL)
        return stack_after(after) if found else ()

    def exit_stack(self) -> tuple[StackLine, ...]:
        """Return the stack of the call that raised SystemExit, innermost first, if it is the last
        that was written."""
        _, found, after = self._read().rpartition(EXIT)
        return stack_after(EXIT + after, EXIT) if found and not _BLOCK.search(after) else ()

    def close(self) -> None:
        self._descriptor.close()

    def __repr__(self) -> str:
        return f"<Trace, {self.bytes} bytes>"

    def _read(self, start: int = 0) -> str:
        start = max(start, self.bytes - READ)
        return os.pread(self.number, READ, start).decode(errors="replace")


def stack_after(text: str, *heads: str) -> tuple[StackLine, ...]:
    """Return the last stack with one of these heads; without any, the last of all."""
    blocks = [match for match in _BLOCK.finditer(text) if not heads or match[0] in heads]
    if not blocks:
        return ()
    rest = text[blocks[-1].end() :]
    following = _BLOCK.search(rest)
    block = rest if following is None else rest[: following.start()]
    frames = []
    for file, line, name in _FRAME.findall(block):
        if _OURS.search(file):  # from here on outwards it is we who call
            break
        frames.append(StackLine(file, int(line), name))
    return tuple(frames)
