"""Run processes to their end, or end them: a check that hangs or crashes is a result.

1. Each has a session of its own, and all that is left of its group is killed when it has ended.
2. If one of several fails, the others have a moment to end by themselves: they may wait for it.
3. One that is late is asked for its stacks (SIGUSR1) before it is killed.
"""

from __future__ import annotations

import contextlib
import os
import select
import signal
import subprocess
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from ..._linux.clock import monotonic, pause

AFTER_FAILURE_S = 5.0  # for the others; what waits for a rank that is gone waits for minutes
STACKS_S = 1.0  # to write the stacks of all threads; takes milliseconds
GONE_S = 5.0  # for a killed process to be gone; one in a driver's call may stay
KEPT_BYTES = 1 << 16  # of what each wrote; the end has the error


@dataclass(frozen=True, slots=True)
class Ending:
    """How one process ended."""

    code: int | None  # negative: by that signal; None: it was killed, and perhaps is still there
    output: str  # the end of what it wrote, both streams
    is_late: bool = False  # it was ended, for it had not in time


def run_together(
    commands: Sequence[Sequence[str]],
    bound_s: float,
    folder: Path,
    environment: Mapping[str, str],
) -> list[Ending]:
    """Run processes beside each other until all have ended, or the time is over."""
    started: list[_Started] = []
    try:
        for number, command in enumerate(commands):
            started.append(_Started(command, folder / f"output-{number}", environment))
        _wait(started, monotonic() + bound_s)
        late = [each for each in started if not each.has_ended()]
        for each in late:
            each.ask_for_stacks()
        if late:
            pause(STACKS_S)
    finally:  # also if somebody pressed Ctrl-C
        for each in started:
            each.end()
    return [each.ending(is_late=each in late) for each in started]


class _Started:
    """One process, with its group."""

    def __init__(self, command: Sequence[str], output: Path, environment: Mapping[str, str]):
        self._output = output
        with output.open("wb") as file:
            self._process = subprocess.Popen(
                command,
                stdin=subprocess.DEVNULL,
                stdout=file,
                stderr=subprocess.STDOUT,
                env=dict(environment),
                start_new_session=True,
            )
        try:
            self.descriptor = os.pidfd_open(self._process.pid)
        except BaseException:  # nobody else would end it
            self._process.kill()
            self._process.wait(GONE_S)
            raise
        self._is_over = False

    def __repr__(self) -> str:
        return f"<_Started {self._process!r}>"

    def has_ended(self) -> bool:
        """Whether it has, without reaping it: until then its group's number is its own."""
        return self._is_over or bool(_ended([self], 0.0))

    def has_failed(self) -> bool:
        if not self.has_ended():
            return False
        found = os.waitid(os.P_PIDFD, self.descriptor, os.WEXITED | os.WNOWAIT)
        return found is not None and found.si_status != 0

    def ask_for_stacks(self) -> None:
        with contextlib.suppress(OSError):
            signal.pidfd_send_signal(self.descriptor, signal.SIGUSR1)

    def end(self) -> None:
        """Kill what is left of its group. Waits for the process itself only, and not for ever."""
        if self._is_over:
            return
        self._is_over = True
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(self._process.pid, signal.SIGKILL)
        with contextlib.suppress(subprocess.TimeoutExpired):
            self._process.wait(GONE_S)
        os.close(self.descriptor)

    def ending(self, *, is_late: bool) -> Ending:
        """Return how it ended, after `end`."""
        with self._output.open("rb") as file:
            file.seek(max(0, self._output.stat().st_size - KEPT_BYTES))
            text = file.read(KEPT_BYTES).decode(errors="replace")
        return Ending(None if is_late else self._process.returncode, text, is_late)


def _wait(started: Sequence[_Started], until: float) -> None:
    """Return when all have ended, or the time is over, or has been since one failed."""
    has_failed = False
    while running := [each for each in started if not each.has_ended()]:
        left_s = until - monotonic()
        if left_s <= 0:
            return
        _ended(running, left_s)
        if not has_failed and any(each.has_failed() for each in started):
            has_failed = True
            until = min(until, monotonic() + AFTER_FAILURE_S)


def _ended(processes: Sequence[_Started], wait_s: float) -> list[int]:
    """Wait for one of them to end; return the descriptors of those that have."""
    poll = select.poll()
    for each in processes:
        poll.register(each.descriptor, select.POLLIN)
    return [descriptor for descriptor, _ in poll.poll(1000 * wait_s)]
