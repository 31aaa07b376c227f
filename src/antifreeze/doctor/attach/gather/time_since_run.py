"""For how long threads have not run: by the scheduler's own clock, which anybody may read.

`/proc/PID/task/TID/sched` says when a thread last ran (`se.exec_start`, in ms). Each CPU has a
clock of its own for it, which leaves out the time that interrupts and the host have taken, so that
two of them may be hours apart after months: a thread is compared with one of ours on the CPU that
it last ran on.

A thread that py-spy stops runs when it goes on: who looks again and again would find each time that
all have just run. `TimesSinceRun` remembers when its own looks have woken a thread, and counts on
from there."""

from __future__ import annotations

import os
import re
import threading
from dataclasses import dataclass

from ...._linux import procfs
from ...._linux.clock import monotonic, pause
from . import proc

UNKNOWN = -1.0
MOST_CPUS = 64  # whose clocks are read: a millisecond each
CLOCKS_S = 1.0  # for all of them: one may be taken by somebody who never lets go
SETTLE_S = 0.02  # until a thread that py-spy has let go sleeps again
# The file begins with the thread's name, which may hold anything but a line end: the last counts.
_RAN = re.compile(r"^se\.exec_start *: *(\d{1,18}\.\d{1,9})$", re.MULTILINE | re.ASCII)
Numbers = tuple[int, int]  # of a process, and of a thread of it


@dataclass(frozen=True, slots=True)
class WokenThread:
    """A thread that our own look has woken."""

    ran_at: float  # ms, by its CPU's clock
    slept_s: float  # until then
    at: float


class TimesSinceRun:
    """For how long threads have slept, over several looks of one observer."""

    def __init__(self) -> None:
        self._woken: dict[Numbers, WokenThread] = {}
        self._slept: dict[Numbers, float] = {}  # as they were at `_at`
        self._at = 0.0

    def seconds(self, pids: list[int]) -> dict[Numbers, float]:
        """Return for how long each thread of these processes has not run; those that are not known
        are left out. To be asked before py-spy stops them."""
        ran = {each: at for pid in pids for each, at in _ran(pid).items()}
        clocks = _clocks([cpu for cpu, _ in ran.values()])
        found = {
            each: max(0.0, clocks[cpu] - at) / 1000
            for each, (cpu, at) in ran.items()
            if cpu in clocks
        }
        for each, (_, at) in ran.items():
            woken = self._woken.get(each)
            if woken is not None and woken.ran_at == at:
                found[each] = woken.slept_s + monotonic() - woken.at
        self._slept, self._at = found, monotonic()
        return found

    def disturbed(self, kept: set[Numbers]) -> None:
        """Note that these threads, which have not moved since, were stopped and let go by us."""
        pause(SETTLE_S)
        now = monotonic()
        ran = {each: at for pid in {pid for pid, _ in kept} for each, at in _ran(pid).items()}
        self._woken = {
            each: WokenThread(ran[each][1], self._slept[each] + now - self._at, now)
            for each in kept
            if each in ran and each in self._slept
        }


def _ran(pid: int) -> dict[Numbers, tuple[int, float]]:
    """Return for each thread of a process the CPU that it last ran on, and when."""
    found = {}
    for tid in proc.threads(pid):
        at = ran_at(proc.read(pid, "task", str(tid), "sched"))
        stat = procfs.stat(proc.read(pid, "task", str(tid), "stat"))
        if at > 0 and stat is not None:
            found[pid, tid] = stat.on_cpu, at
    return found


def ran_at(text: str) -> float:
    """Read a thread's `sched` file: when it last ran, in ms; 0 if it does not say."""
    found = _RAN.findall(text)
    return float(found[-1]) if found else 0.0


def _clocks(cpus: list[int]) -> dict[int, float]:
    """Return what the clocks of some CPUs say now, in ms; a CPU that we may not use is left out."""
    found: dict[int, float] = {}

    def go_round() -> None:
        for cpu in list(dict.fromkeys(cpus))[:MOST_CPUS]:
            try:
                os.sched_setaffinity(0, {cpu})  # of this thread alone
                text = proc.read(os.getpid(), "task", str(threading.get_native_id()), "sched")
            except OSError:
                continue
            if at := ran_at(text):
                found[cpu] = at

    goer = threading.Thread(target=go_round, name="clocks", daemon=True)
    goer.start()
    goer.join(CLOCKS_S)
    return dict(found)
