"""Whether a process that was killed was ended by the kernel, for want of memory."""

from __future__ import annotations

import re
import signal
from dataclasses import replace
from pathlib import Path

from .._core.faults import Ending
from .._transport.available import CGROUPS, available, in_words


class Shortage:
    """Know how many processes had been ended for that when the first worker was wanted."""

    def __init__(self) -> None:
        self._before = _ended()

    def explain(self, ending: Ending, peak_bytes: int) -> Ending:
        """Add what is known about a process that was killed."""
        if ending.signal != signal.SIGKILL:
            return ending
        held = f"; it had held up to {in_words(peak_bytes)}" if peak_bytes else ""
        before, self._before = self._before, _ended()
        if before is None or self._before is None:
            return ending
        if self._before > before:
            left = available()
            free = f"{in_words(left.bytes)} are {left.source} now"
            return replace(ending, words=f"out of memory: the kernel ended it{held}; {free}")
        words = "someone sent SIGKILL; not the kernel, which has ended nobody for want of memory"
        return replace(ending, words=words + held)


def _ended() -> int | None:
    """Count those that the kernel has ended, in our group; if it does not say, in the machine."""
    for path in _counters():
        try:
            found = re.search(r"^oom_kill (\d+)$", path.read_text(), re.MULTILINE)
        except OSError:
            continue
        if found is not None:
            return int(found[1])
    return None


def _counters() -> list[Path]:
    paths = []
    try:
        lines = Path("/proc/self/cgroup").read_text().splitlines()
    except OSError:
        lines = []
    for line in lines:
        _, controllers, path = line.split(":", 2)
        if not controllers:
            paths.append(CGROUPS / path.lstrip("/") / "memory.events")
        elif "memory" in controllers.split(","):
            paths.append(CGROUPS / "memory" / path.lstrip("/") / "memory.oom_control")
    return [*paths, Path("/proc/vmstat")]
