"""Run a command for at most so many seconds, and end it with everything it has started."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import tempfile
import threading
import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

# Polite first, so that a healthy program can tidy up; a frozen one does not listen. The grace is
# longer than what a scenario needs to end its own child, so that the gallery leaves no orphans.
TERM_GRACE_S = 4.0
KILL_GRACE_S = 5.0
LOOK_EVERY_S = 0.1

Ended = Literal["finished", "failed", "frozen"]

_stop_asked = threading.Event()


@dataclass(frozen=True, slots=True)
class Run:
    """How a bounded command ended and what it wrote."""

    ended: Ended
    exit_code: int
    seconds: float
    stdout: str
    stderr: str

    @property
    def last_words(self) -> str:
        """Return the last line of stderr: what a user would look at first."""
        lines = [line.strip() for line in self.stderr.splitlines() if line.strip()]
        return lines[-1] if lines else ""


def heed_sigterm() -> None:
    """Make SIGTERM end the present bounded run first, then this program."""
    signal.signal(signal.SIGTERM, lambda *_: _stop_asked.set())


def run_bounded(command: Sequence[str], bound_s: float, still_s: float | None = None) -> Run:
    """Run a command in a process group of its own; `frozen` means that it used up its bound.

    With `still_s` a command that writes to stdout as it gets on is also frozen when it has once
    begun to write and has then written nothing for so long.
    """
    begin = time.monotonic()
    # Files, not pipes: a worker that outlives its parent would keep a pipe open for ever.
    with tempfile.TemporaryFile() as stdout, tempfile.TemporaryFile() as stderr:
        child = subprocess.Popen(
            command,
            stdin=subprocess.DEVNULL,
            stdout=stdout,
            stderr=stderr,
            start_new_session=True,
        )
        try:
            in_time = _wait(child, begin + bound_s, stdout.fileno(), still_s)
            seconds = time.monotonic() - begin
        finally:
            _end(child)
        ended: Ended = "frozen"
        if in_time:
            ended = "finished" if child.returncode == 0 else "failed"
        texts = []
        for stream in (stdout, stderr):
            stream.seek(0)
            texts.append(stream.read().decode(errors="replace"))
        return Run(ended, child.returncode, seconds, *texts)


def _wait(
    child: subprocess.Popen[bytes], deadline: float, stdout: int, still_s: float | None
) -> bool:
    written, since = 0, time.monotonic()
    while child.poll() is None:
        if _stop_asked.is_set():
            raise SystemExit(128 + signal.SIGTERM)
        now = time.monotonic()
        if now >= deadline:
            return False
        if (size := os.fstat(stdout).st_size) != written:
            written, since = size, now
        if still_s is not None and written and now - since >= still_s:
            return False
        with contextlib.suppress(subprocess.TimeoutExpired):
            child.wait(LOOK_EVERY_S)
    return True


def _end(child: subprocess.Popen[bytes]) -> None:
    if child.poll() is None:
        _signal_group(child.pid, signal.SIGTERM)
        with contextlib.suppress(subprocess.TimeoutExpired):
            child.wait(TERM_GRACE_S)
    _signal_group(child.pid, signal.SIGKILL)  # workers may outlive the process that started them
    child.wait(KILL_GRACE_S)


def _signal_group(leader: int, number: signal.Signals) -> None:
    with contextlib.suppress(ProcessLookupError):  # the whole group is gone already
        os.killpg(leader, number)
