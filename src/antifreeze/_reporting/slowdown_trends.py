"""What creeps: samples that take longer and longer, loops that wait more and more, memory that
rises from hour to hour. Said once, with figures, before it becomes a freeze.

1. A run is cut into windows of some seconds; one that is long is kept as 48 windows, by joining
   neighbours, so that all of it counts and memory does not grow with it.
2. The first third of the windows is compared with the last third: the medians, so that a burst of
   slow samples, a cold cache at first or a validation in between are no trend.
3. It must rise in between as well: most later windows lie above most earlier ones (Kendall's tau).
"""

from __future__ import annotations

from itertools import combinations, pairwise

from .._core.frozen_values import frozen
from .._core.limits import LIMITS

LEAST = 12  # windows; nothing is said of fewer
FACTOR = 1.5  # by which samples take longer
SHARE = 0.25  # by which more of the time is waited
MEMORY_FACTOR, MEMORY_BYTES = 1.5, 512 << 20
TAU = 0.5  # of pairs that rise, less those that fall; 1: each is above all before it
SHORTEST_S = 0.0002  # a sample below this is no matter, whatever it rises to
GUARD = 1e-9


@frozen
class Window:
    """A piece of a run."""

    at: float
    sample_s: float  # to fetch one, in the mean
    wait_share: float
    own_bytes: int = 0  # of the largest worker


@frozen
class Trend:
    """What has crept."""

    what: str  # "sample_s", "wait_share", "own_bytes"
    before: float
    now: float
    seconds: float  # over which

    def __str__(self) -> str:
        hours = self.seconds / 3600
        over = f"{hours:.1f} hours" if hours >= 1 else f"{self.seconds / 60:.0f} minutes"
        if self.what == "sample_s":
            return (
                f"samples take {self.now / self.before:.1f} times as long as at first"
                f" ({_ms(self.before)} then, {_ms(self.now)} now, over {over})"
            )
        if self.what == "wait_share":
            return (
                f"the loop waits for data {self.now:.0%} of the time, {self.before:.0%} at first"
                f" (over {over})"
            )
        return (
            f"a worker holds {self.now / 2**30:.1f} GiB of its own, {self.before / 2**30:.1f} GiB"
            f" at first (over {over})"
        )


def _ms(seconds: float) -> str:
    return f"{1000 * seconds:.3g} ms"


class Trends:
    """The windows of a run, and what they show."""

    __slots__ = ("_said", "_span", "_waiting", "due", "most", "own_bytes", "windows")

    def __init__(self) -> None:
        self.windows: list[Window] = []
        self.most = LIMITS.records.trend_windows
        self.own_bytes = 0  # of the largest worker, in the present window
        self.due: list[Trend] = []  # to be said
        self._said: set[str] = set()
        self._span = 1  # windows that are joined to one
        self._waiting: list[Window] = []  # to be joined

    def add(self, window: Window) -> None:
        """Take the next window; what it shows is then `due`."""
        whole = Window(window.at, window.sample_s, window.wait_share, self.own_bytes)
        self.own_bytes = 0
        self._waiting.append(whole)
        if len(self._waiting) < self._span:
            return
        self.windows.append(_joined(self._waiting))
        self._waiting = []
        if len(self.windows) >= self.most:
            self.windows = [_joined(list(pair)) for pair in _pairs(self.windows)]
            self._span *= 2
        self.due.extend(self._found())

    def _found(self) -> list[Trend]:
        if len(self.windows) < LEAST:
            return []
        found = []
        for what in ("sample_s", "wait_share", "own_bytes"):
            if what not in self._said and (trend := self._rises(what)) is not None:
                self._said.add(what)
                found.append(trend)
        return found

    def _rises(self, what: str) -> Trend | None:
        values = [float(getattr(window, what)) for window in self.windows]
        third = len(values) // 3
        before, now = median(values[:third]), median(values[-third:])
        if not _matters(what, before, now) or _tau(values) < TAU:
            return None
        return Trend(what, before, now, self.windows[-1].at - self.windows[0].at)


def _matters(what: str, before: float, now: float) -> bool:
    if what == "sample_s":
        return now >= FACTOR * before and now >= SHORTEST_S and before > 0
    if what == "wait_share":
        return now >= before + SHARE
    return now >= MEMORY_FACTOR * before and now >= before + MEMORY_BYTES and before > 0


def median(values: list[float]) -> float:
    """(`statistics` has one, and takes 5 ms to import.)"""
    return sorted(values)[len(values) // 2]


def _tau(values: list[float]) -> float:
    """Say how steadily they rise. What differs by nothing counts for nothing."""
    pairs = list(combinations(values, 2))
    return sum((b > a + GUARD) - (b < a - GUARD) for a, b in pairs) / len(pairs)


def _pairs(windows: list[Window]) -> list[tuple[Window, Window]]:
    return [pair for number, pair in enumerate(pairwise(windows)) if number % 2 == 0]


def _joined(windows: list[Window]) -> Window:
    count = len(windows)
    return Window(
        windows[-1].at,
        sum(each.sample_s for each in windows) / count,
        sum(each.wait_share for each in windows) / count,
        max(each.own_bytes for each in windows),
    )
