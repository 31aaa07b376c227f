"""In which sample a thread is found, and at which line of the program, by looks from another one.

1. Samples that are too cheap to be timed one by one cost nothing this way, and one among them that
   takes far longer is found all the same: some look falls into it. (If it keeps the interpreter's
   lock, the look comes when it lets go, before the next sample is begun.)
2. A thread that looks needs the interpreter's lock. The other one gives it away by itself where it
   calls into a library, and else after five milliseconds: whoever just waits for it finds the line
   of that call, however short it is. So a look at lines is taken at a moment by chance, and the
   lock is asked for at once (`at_any_moment`); one of several looks, since threads that share the
   lock feel it.
"""

from __future__ import annotations

import functools
import linecache
import os
import random
import re
import sys
from collections import Counter
from dataclasses import replace
from types import FrameType

from .._core.batch_timings import Timings
from .._core.health.worker_phases import SAMPLE, WHOLE
from .._core.limits import LIMITS
from .._linux.clock import pause
from .._loading.observations import FOR_A_LOCK
from .._transport.traceback_frames import is_library, is_ours

SLOW_S = 0.1  # a batch that took so long has a slow sample: one that some look fell into
LOOK_S = 0.05  # between two looks: late ones included, there is one in every `SLOW_S`
# Before a look: by chance so long, as long as the interpreter lets a thread keep its lock.
WANDER_S = 0.005
SHARP_S = 0.00001  # that the lock is waited for meanwhile before it is asked for
LINE_EVERY = 4  # looks: those at which the line is asked for, too


_chance = random.Random()  # not the program's


def at_any_moment() -> None:
    """Wait until a moment in which no other thread has a say.

    For some milliseconds threads of this process take turns more often than they would; only those
    feel it that compute in Python beside another one.
    """
    usual_s = sys.getswitchinterval()
    sys.setswitchinterval(SHARP_S)
    sharp_s = sys.getswitchinterval()  # as it is kept: in whole microseconds
    try:
        pause(_chance.uniform(0.0, WANDER_S))
    finally:
        if sys.getswitchinterval() == sharp_s:  # else the program has set it meanwhile
            sys.setswitchinterval(usual_s)


class SamplingProfiler:
    """What looks have shown. One thread looks; another one, which loads, asks and takes."""

    __slots__ = ("_places", "_seen")

    def __init__(self) -> None:
        self._places: Counter[str] = Counter()
        # A ticket, and how many looks fell into its samples; the latest of these, by its step, and
        # how many fell into it; the same of the one with most. Set at once: another thread reads.
        self._seen = (0, 0, 0, 0, 0, 0)

    def __repr__(self) -> str:
        ticket, looks, *_ = self._seen
        return f"<Looks: {looks} into ticket {ticket}, {len(self._places)} lines>"

    def note_line(self, step: int, frame: FrameType | None) -> None:
        """Take the line that a look at any moment has shown. Keeps nothing of the frame."""
        if step < SAMPLE and step != WHOLE:
            return
        if len(self._places) < LIMITS.looks.hot_lines and (place := place_of(frame)) is not None:
            self._places[place] += 1

    def note(self, ticket: int, step: int) -> None:
        """Take the sample that a look has shown."""
        if step < SAMPLE:
            return
        number, looks, latest, its, most, its_most = self._seen
        if number != ticket:
            looks = latest = its = most = its_most = 0
        its = its + 1 if step == latest else 1
        if its > its_most:
            most, its_most = step, its
        self._seen = (ticket, looks + 1, step, its, most, its_most)

    def with_slowest(self, timings: Timings, ticket: int) -> Timings:
        """Add the slow sample to what a batch took whose samples were not timed one by one. It has
        as much of the time as of the looks."""
        if timings.samples == 1:
            return replace(timings, slowest_s=timings.fetch_s, slowest=0)
        number, looks, _, _, most, its_most = self._seen
        if number != ticket:
            return timings
        seconds = timings.fetch_s * its_most / looks
        return replace(timings, slowest_s=seconds, slowest=most - SAMPLE)

    @property
    def any_places(self) -> bool:
        return bool(self._places)

    def take_places(self) -> tuple[tuple[str, int], ...]:
        """Give, once, the lines that samples were found in."""
        found, self._places = self._places, Counter()
        return tuple(found.most_common())


def place_of(frame: FrameType | None) -> str | None:
    """Return the line of the program that a thread is in: the innermost that is not of a library;
    if there is none, the innermost that is not ours. Mark it if it waits for a lock there."""
    innermost: str | None = None
    locks = False
    for _ in range(LIMITS.looks.stack_frames):
        if frame is None:
            break
        file = frame.f_code.co_filename
        if is_ours(file):
            break  # what is further out called us
        if not file.startswith("<"):
            place = f"{os.path.basename(file)}:{frame.f_lineno} in {frame.f_code.co_name}"
            if not is_library(file):
                locks = locks or _takes_lock(file, frame.f_lineno)
                return place + FOR_A_LOCK if locks else place
            locks = locks or file.endswith(_LOCKS)
            innermost = innermost or place
        frame = frame.f_back
    return innermost


# Libraries in which a thread is only while it takes a lock, or releases it.
_LOCKS = ("multiprocessing/synchronize.py", "filelock/_api.py", "portalocker/utils.py")
_TAKES = re.compile(r"\b(flock|lockf)\s*\(|\.acquire\s*\(|^\s*with\b.*lock", re.IGNORECASE)


@functools.lru_cache(maxsize=256)
def _takes_lock(file: str, line: int) -> bool:
    """Whether a line takes a lock, by its source: a call of C leaves no frame."""
    return _TAKES.search(linecache.getline(file, line)) is not None
