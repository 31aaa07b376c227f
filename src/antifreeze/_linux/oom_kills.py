"""Count the processes that the kernel has ended for want of memory, and who may be one of them.

What is said of a worker that was one: `_reporting/out_of_memory.py`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

from . import cgroups, plain_reads, procfs
from .clock import monotonic

# How long an end that the kernel has counted may wait for the news of whose it was. Workers that
# are ended together are told one after the other, within a second even on a busy machine.
WAITS_S = 10.0
MOST = 256  # ends that wait; more workers than that are not ended together


class OomKills:
    """Know how many processes had been ended for that when the first worker was wanted. Each of
    those that follow explains one death."""

    def __init__(
        self,
        ended: Callable[[], int | None] | None = None,
        now: Callable[[], float] = monotonic,
    ) -> None:
        """`ended` counts all that the kernel has ended; None if nobody knows."""
        self._ended, self._now = ended or _ended, now
        self._before = self._ended()
        self._counted: list[float] = []  # when, of ends that have explained no death yet

    def look(self) -> bool:
        """Count those that were ended since the last look. Return whether that is known.

        Who looks often does not take an end of long ago for one of today.
        """
        before, self._before = self._before, self._ended()
        if before is None or self._before is None:
            return False
        now = self._now()
        self._counted = [at for at in self._counted if now - at <= WAITS_S]
        self._counted += [now] * min(self._before - before, MOST - len(self._counted))
        return True

    def claim(self) -> bool | None:
        """Whether the kernel has ended a process that explains no death yet. It explains this one.

        None where nobody counts them.
        """
        if not self.look():
            return None
        if not self._counted:
            return False
        self._counted.pop(0)
        return True


def _ended() -> int | None:
    """Count those that the kernel has ended, in our group; if it does not say, in the machine."""
    for path in _counters():
        if (found := procfs.counters(plain_reads.text(path)).get("oom_kill")) is not None:
            return found
    return None


def _counters() -> Iterator[str]:
    """Yield the files with such a count, the narrowest first."""
    for group in cgroups.own_groups():
        if not group.controller:
            yield f"{group.folders[0]}/memory.events"
        elif group.controller == "memory":
            yield f"{group.folders[0]}/memory.oom_control"
    yield "/proc/vmstat"
