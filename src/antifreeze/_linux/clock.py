"""The only file that reads a clock."""

from __future__ import annotations

import time
from typing import Protocol

CPU_CLOCK = 2  # of a process, by its number: what the scheduler counts (CPUCLOCK_SCHED)


class Clock(Protocol):
    def now(self) -> float:
        """Give the time in seconds; it never goes back. Only differences mean anything."""
        ...


# CLOCK_MONOTONIC: one clock for all processes of the machine, so a worker's times and ours compare.
monotonic = time.monotonic
# Processor time, of this thread and of this process: what work costs, however busy the machine is.
thread_time = time.thread_time
process_time = time.process_time


def process_cpu_s(pid: int) -> float | None:
    """Return the processor time of a process, all its threads counted; None if that is not told."""
    try:
        return time.clock_gettime(~pid << 3 | CPU_CLOCK)
    except OSError:
        return None


def pause(seconds: float) -> None:
    """Wait a moment for something that cannot be waited for."""
    time.sleep(seconds)


def time_of_day() -> str:
    """Say how late it is, to people."""
    return time.strftime("%H:%M:%S")


def moment() -> str:
    """Give the present time, for files: 2026-03-01T14:03:59+0100."""
    return time.strftime("%Y-%m-%dT%H:%M:%S%z")


def follow_zone() -> None:
    """Have local times follow the variable TZ as it is now."""
    time.tzset()


class MonotonicClock:
    """The machine's own clock."""

    now = staticmethod(monotonic)
