"""Run another program for its answer: bounded in time and in bytes, even if it cannot be ended."""

from __future__ import annotations

import selectors
import subprocess
from collections.abc import Sequence
from dataclasses import dataclass
from typing import IO

from ...._linux.clock import monotonic

ENDED_S = 1.0  # for a program that was killed to be gone; one that waits for a disk may not go
ERROR_BYTES = 1 << 16  # of what it complains of


@dataclass(frozen=True, slots=True)
class Done:
    """What came of it."""

    code: int = -1
    output: bytes = b""
    errors: bytes = b""
    late: bool = False  # it was ended, for it had given no answer in time
    too_long: bool = False  # it was ended, for its answer had no end


def run_bounded(
    command: Sequence[str], wait_s: float, most_bytes: int, given: IO[bytes] | None = None
) -> Done:
    """Run a program, with a file as its input, and return what it wrote. Raises OSError if it
    cannot be started."""
    until = monotonic() + wait_s
    process = subprocess.Popen(
        command,
        stdin=subprocess.DEVNULL if given is None else given,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    )
    assert process.stdout is not None and process.stderr is not None
    with process.stdout as output, process.stderr as errors:
        written, complaints = _Stream(output, most_bytes), _Stream(errors, ERROR_BYTES)
        finished = _read_all(written, complaints, until) and _is_gone(
            process, max(0.0, until - monotonic())
        )
        if not finished:
            process.kill()
            _is_gone(process, ENDED_S)
        return Done(
            code=-1 if process.returncode is None else process.returncode,
            output=bytes(written.data),
            errors=bytes(complaints.data),
            late=not finished and not written.overflowed,
            too_long=written.overflowed,
        )


class _Stream:
    """One of the two that a program writes to. What is beyond its bound is dropped."""

    def __init__(self, file: IO[bytes], most_bytes: int) -> None:
        self.file, self._most = file, most_bytes
        self.data = bytearray()
        self.overflowed = False

    def read(self) -> bool:
        """Read what is there; return whether there may be more."""
        part: bytes = self.file.read1(1 << 16)  # type: ignore[attr-defined]
        self.overflowed |= len(self.data) + len(part) > self._most
        self.data += part[: self._most - len(self.data)]
        return bool(part)

    def __repr__(self) -> str:
        return f"<_Stream {len(self.data)} of {self._most} bytes>"


def _read_all(output: _Stream, errors: _Stream, until: float) -> bool:
    """Read until both have ended; return whether they have, in time and within the bound."""
    with selectors.DefaultSelector() as ready:
        for each in (output, errors):
            ready.register(each.file, selectors.EVENT_READ, each)
        while ready.get_map():
            if output.overflowed or (left := until - monotonic()) <= 0:
                return False
            for key, _ in ready.select(left):
                if not key.data.read():
                    ready.unregister(key.fileobj)
    return not output.overflowed


def _is_gone(process: subprocess.Popen[bytes], wait_s: float) -> bool:
    try:
        process.wait(wait_s)
    except subprocess.TimeoutExpired:
        return False
    return True
