"""The file in which a life leaves its stack: written in the worker, read by the main process.

It has no name and lies in memory, so it can be read when the worker is gone, and goes with its last
holder. Stacks are in the form of `faulthandler`, whoever wrote them.
"""

from __future__ import annotations

import os
import re

from .._core.stalls import Frame
from .descriptors import Descriptor

NAME = "antifreeze-trace"
READ = 256 * 1024  # bytes from its end: room for the last stacks of some hundred threads
_BLOCK = re.compile(r"^(?:Current thread|Thread|Stack) ?.*\(most recent call first\):$", re.M)
_FRAME = re.compile(r'^  File "(.*)", line (\d+) in (.*)$', re.M)
_OURS = re.compile(r"[/\\]antifreeze[/\\]_worker[/\\](\w+)\.py$")
_ENDS = ("loop", "main")  # modules of ours that call the user's code, in the end


class Trace:
    """One such file, for the main process."""

    def __init__(self) -> None:
        self._descriptor = Descriptor(os.memfd_create(NAME, os.MFD_CLOEXEC))

    @property
    def number(self) -> int:
        return self._descriptor.number

    def stack(self) -> tuple[Frame, ...]:
        """Give the newest stack of the life's main thread, innermost first, as far as it is the
        user's or a library's; nothing if none was written."""
        return newest_stack(self._read())

    def is_fatal(self) -> bool:
        """Say whether the interpreter left word of a crash."""
        return "Fatal Python error" in self._read()

    @property
    def bytes(self) -> int:
        """Count what was written to it: that is no work of the life's own."""
        return os.fstat(self.number).st_size

    def close(self) -> None:
        self._descriptor.close()

    def _read(self) -> str:
        return os.pread(self.number, READ, max(0, self.bytes - READ)).decode(errors="replace")


def newest_stack(text: str) -> tuple[Frame, ...]:
    blocks = _BLOCK.split(text)[1:]
    for block in reversed(blocks):
        frames = [Frame(file, int(line), name) for file, line, name in _FRAME.findall(block)]
        ours = [_OURS.search(frame.file) for frame in frames]
        if any(match is not None and match[1] in _ENDS for match in ours):
            first = next(place for place, match in enumerate(ours) if match is not None)
            return tuple(frames[:first])
    return ()
