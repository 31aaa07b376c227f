"""How worker processes ended: what pidfds, their source and their channels tell, put together.

1. That a worker has ended is seen by its pidfd. How it ended is news of its source, which comes a
   moment earlier or later, or never: that wait is bounded.
2. A worker whose parent is gone goes with it. Neither it nor what it worked on is to blame.
3. What is asked here returns `LifeEnded` as soon as it is known how a worker ended, else None.
   Whoever gets it lets go of the worker: there is no second one.
"""

from __future__ import annotations

import contextlib
import os
import signal
from dataclasses import replace

from .._core.commands import Force
from .._core.events import LifeEnded
from .._core.faults import Ending
from .._core.health.worker_phases import CLEAN, OURS
from .._core.limits import StartLimits
from .._linux.clock import monotonic
from .._linux.oom_kills import OomKills
from .._reporting.out_of_memory import explain_kill
from .._reporting.stall_messages import where
from .starting.worker_source import EndedWhileOpening, Exited, ending_of, exit_in_words
from .worker_socket import Line

# Signals by which a crash in native code ends a process.
CRASH_SIGNALS = frozenset(
    {signal.SIGSEGV, signal.SIGBUS, signal.SIGFPE, signal.SIGILL, signal.SIGABRT, signal.SIGSYS}
)
GARBLED = "something in it wrote to its channel: to a descriptor that was not its own"


class WorkerEndings:
    """The workers of one backend that have ended, until it is known how."""

    def __init__(self, limits: StartLimits) -> None:
        self._wait_s = limits.reap_s
        self.unexplained: dict[Line, float] = {}  # ended; until when to wait for an exit status
        self._oom_kills = OomKills()

    def look_for_oom_kills(self) -> None:
        """Count the processes that the kernel has ended for want of memory, to know today's."""
        self._oom_kills.look()

    def seen(self, line: Line) -> LifeEnded | None:
        """A worker's pidfd tells that it has ended."""
        known = line.ending or line.orphaned
        if known is not None:  # the news came first
            return self._explain(line, known)
        self.unexplained[line] = monotonic() + self._wait_s
        return None

    def exited(self, line: Line, news: Exited) -> LifeEnded | None:
        """A worker's source tells how it ended."""
        line.worker.exitcode = news.code
        ending = line.orphaned  # if so, we have ended it
        if ending is None:
            ending = line.ending = explain_kill(
                self._oom_kills, ending_of(news.code), news.peak_bytes
            )
        return self._explain(line, ending) if line in self.unexplained else None

    def orphaned(self, line: Line, ending: Ending) -> LifeEnded | None:
        """A worker's parent is gone: the worker is, too, or will be."""
        if line.ending is not None:
            return None
        line.orphaned = ending
        if line.pidfd is None or line in self.unexplained:
            return self._explain(line, ending)
        line.worker.end(Force.KILL)  # the kernel does, too
        return None

    def refused(self, line: Line, words: str) -> LifeEnded:
        """A worker could not begin."""
        return self._explain(line, Ending(words=words, refused=True))

    def left(self, line: Line) -> LifeEnded:
        """A worker has said that it leaves, as it was told to: only the kernel has work with it."""
        line.worker.exitcode = 0
        return self._explain(line, Ending(exit_code=0))

    def overdue(self) -> list[tuple[Line, LifeEnded]]:
        """Return the ends of those that nobody has told about in time."""
        now = monotonic()
        late = [line for line, until in self.unexplained.items() if until <= now]
        return [
            (line, self._explain(line, Ending(words="nobody could say how it ended")))
            for line in late
        ]

    def forget(self, line: Line) -> None:
        """Ask no more how a worker ended."""
        self.unexplained.pop(line, None)

    def _explain(self, line: Line, ending: Ending) -> LifeEnded:
        self.forget(line)
        if ending is line.orphaned and line.pidfd is not None:
            # Where this process is the first of its container, what lost its parent is its child.
            with contextlib.suppress(OSError):
                os.waitid(os.P_PIDFD, line.pidfd.number, os.WEXITED | os.WNOHANG)
        # Who goes with its parent is not to blame, nor is what it worked on.
        working_on, step = (0, OURS) if ending is line.orphaned else line.status.call
        stack = line.trace.last_words() if ending.signal in CRASH_SIGNALS else ()
        words = GARBLED if line.garbled else ending.words
        if ending.exit_code is not None and not words:
            stack = line.trace.exit_stack()
            words = f"sys.exit() was called{where(stack)}" if stack else ""
            ending = replace(ending, called_exit=bool(stack))
        ending = replace(ending, step=step, stack=stack, words=words)
        return LifeEnded(line.seat, line.life, ending, working_on)


def while_opening(line: Line, code: int | None) -> EndedWhileOpening | None:
    """Return what to report of a worker that ended while it opened its job, unless we ended it."""
    if code is None or line.worker.forced or line.status.call[1] != CLEAN:
        return None
    how = f"a worker (pid {line.worker.pid}) {exit_in_words(code)}"
    return EndedWhileOpening(f"{how} while it opened the dataset")
