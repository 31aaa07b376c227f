"""How much of a time was work and how much waiting; and which of several calls took longest."""

from __future__ import annotations

from resource import RUSAGE_THREAD, getrusage

from .._linux.clock import monotonic, process_time

# How long one is kept from a core, each time: a slice of the kernel's, more or less.
SLICE_S = 0.004


class Effort:
    """Tell computing from waiting, from one moment to another, in this thread.

    It has waited if it gave its core away by itself, and then for as long as this process did not
    compute (threads of a library that it waits for work for it), but for the times when others took
    its core away: then it waited for nothing but that.
    """

    __slots__ = ("_began_s", "_gave_way", "_had_to", "began_at")

    def __init__(self) -> None:
        self._began_s = self.began_at = 0.0
        self._gave_way = self._had_to = 0

    def begin(self) -> None:
        self.began_at = monotonic()
        so_far = getrusage(RUSAGE_THREAD)
        self._gave_way, self._had_to = so_far.ru_nvcsw, so_far.ru_nivcsw
        self._began_s = process_time()

    def waited_s(self) -> float:
        """Say how long it has waited since `begin`."""
        computed_s = process_time() - self._began_s
        seconds = monotonic() - self.began_at
        so_far = getrusage(RUSAGE_THREAD)
        if so_far.ru_nvcsw == self._gave_way:
            return 0.0
        kept_off_s = (so_far.ru_nivcsw - self._had_to) * SLICE_S
        return max(0.0, seconds - computed_s - kept_off_s)


class Stopwatch:
    """Find the slowest of calls that follow one another."""

    __slots__ = ("_place", "_since", "slowest", "slowest_s")

    def __init__(self) -> None:
        self._since: float | None = None
        self.slowest_s, self.slowest, self._place = 0.0, 0, 0

    def lap(self, place: int) -> None:
        """Begin with the call at this place; the one before it is over."""
        now = monotonic()
        if self._since is not None and now - self._since > self.slowest_s:
            self.slowest_s, self.slowest = now - self._since, self._place
        self._since, self._place = now, place

    def stop(self) -> None:
        self.lap(0)
        self._since = None
