"""Where time goes: the loop's waiting and working, the waiting by cause, the work of the workers.

Exact sums, histograms, and the worst few: none of it grows with the length of a run. One `Accounts`
a loader, over all its epochs; each iterator counts its own loop with a `Turnstile` and says what a
wait was for with `wait_causes.Waits`. docs/waiting.md defines every number.
"""

from __future__ import annotations

from array import array
from bisect import insort
from collections import Counter, deque
from collections.abc import Iterable, Sequence
from contextlib import AbstractContextManager, nullcontext, suppress
from dataclasses import field, fields
from operator import index as as_integer
from operator import sub
from typing import Any

from .._core.batch_timings import Timings
from .._core.frozen_values import frozen, message, record
from .._core.limits import LIMITS, RecordLimits
from .histogram import Histogram
from .slowdown_trends import Trends, Window

LONGEST = 40  # characters of an index that is no integer


def share_of_time(part_s: float, seconds: float) -> float:
    """Return which share of a time was waited, say; 0 of no time."""
    return part_s / seconds if seconds else 0.0


@record
class Split:
    """Seconds that loops waited, by what they waited for."""

    startup: float = 0.0  # workers came up: `iter`, and the first batch of each
    sampler: float = 0.0  # which samples are next
    fetch_io: float = 0.0  # the dataset waited: disk, network, lock
    fetch_cpu: float = 0.0  # the dataset computed, or wanted a core
    collate: float = 0.0
    transport: float = 0.0  # packing, the way between processes, unpacking
    order: float = 0.0  # others were ready and a worker had nothing to do
    recovery: float = 0.0  # what a lost worker had was loaded again
    memory: float = 0.0  # no memory to load into, or a worker replaced for having grown
    ending: float = 0.0  # workers left
    unknown: float = 0.0

    @property
    def total(self) -> float:
        total: float = sum(getattr(self, cause) for cause in CAUSES)
        return total

    def add(self, other: Split) -> None:
        for cause in CAUSES:
            if seconds := getattr(other, cause):
                setattr(self, cause, getattr(self, cause) + seconds)

    def fetched(self, seconds: float, timings: Timings) -> None:
        """Count seconds of fetching, as much of them waiting as of all of it."""
        io = seconds * timings.io_s / timings.fetch_s if timings.fetch_s else 0.0
        self.fetch_io += io
        self.fetch_cpu += seconds - io


CAUSES = tuple(each.name for each in fields(Split))


@record
class WorkAccount:
    """Sum the timings of all parcels that arrived: what the workers did, waited for or not."""

    parcels: int = 0
    samples: int = 0
    fetch_s: float = 0.0
    io_s: float = 0.0
    collate_s: float = 0.0
    pack_s: float = 0.0

    def add(self, timings: Timings, parcels: int = 1) -> None:
        self.parcels += parcels
        self.samples += timings.samples
        self.fetch_s += timings.fetch_s
        self.io_s += timings.io_s
        self.collate_s += timings.collate_s
        self.pack_s += timings.pack_s

    @property
    def busy_s(self) -> float:
        return self.fetch_s + self.collate_s + self.pack_s


@frozen
class SlowSample:
    """A sample that took long."""

    seconds: float
    index: int | str | None  # as text where it is neither; None: of a stream
    position: int
    worker: int | None  # None: without workers


@frozen
class Wait:
    """One of the latest waits that lasted."""

    seconds: float
    position: int
    cause: str  # that most of it was for


@frozen
class Usage:
    """What one worker has used of the machine, when somebody last looked."""

    worker: int
    cpu_s: float = 0.0
    own_bytes: int = 0
    shared_bytes: int = 0
    swapped_bytes: int = 0
    read_bytes: int = 0
    written_bytes: int = 0
    threads: int = 0


@message
class _Sums:
    """What had been counted at some time."""

    at: float
    waited_s: float
    away_s: float
    samples: int
    fetch_s: float


@record
class Accounts:
    """All that is counted of one loader."""

    epochs: int = 0  # begun
    epochs_ended: int = 0  # of which the loop saw the end
    batches: int = 0
    waited_s: float = 0.0
    away_s: float = 0.0
    open_s: float = 0.0  # the waits that loops were in when somebody last looked
    still: Split = field(default_factory=Split)  # what of them is not in `wait` yet
    seat_s: float = 0.0  # time of the loop, times the seats it had
    wait: Split = field(default_factory=Split)
    work: WorkAccount = field(default_factory=WorkAccount)
    waits: Histogram = field(default_factory=Histogram)
    aways: Histogram = field(default_factory=Histogram)
    sample_s: Histogram = field(default_factory=Histogram)  # means of batches, and the slowest
    fetched: array[float] = field(default_factory=lambda: array("d"))  # not yet in `sample_s`
    slowest: list[SlowSample] = field(default_factory=list)  # the slowest last
    latest: deque[Wait] = field(default_factory=deque)
    places: Counter[str] = field(default_factory=Counter)  # where samples were found
    usages: tuple[Usage, ...] = ()
    trends: Trends = field(default_factory=Trends)
    guard: AbstractContextManager[Any] = field(default_factory=nullcontext)  # against threads
    limits: RecordLimits = LIMITS.records
    _window: _Sums | None = None  # when it began

    def __post_init__(self) -> None:
        self.latest = deque(self.latest, maxlen=self.limits.waits)
        self.trends.most = self.limits.trend_windows

    @property
    def seconds(self) -> float:
        """Give the length of all loops."""
        return self.waited_s + self.away_s + self.open_s

    @property
    def waited_so_far_s(self) -> float:
        """The length of all waits, of those that are not over, too."""
        return self.waited_s + self.open_s

    @property
    def wait_share(self) -> float:
        return share_of_time(self.waited_so_far_s, self.seconds)

    @property
    def busy_share(self) -> float:
        """Give the share of their time that workers were busy; not of that in which the loop waited
        for them to come up, or to leave."""
        seats = self.seat_s / self.seconds if self.seconds else 0.0
        not_theirs_s = self.waited_for("startup") + self.waited_for("ending")
        had_s = self.seat_s - seats * not_theirs_s
        return min(1.0, self.work.busy_s / had_s) if had_s > 0 else 0.0

    def waited_for(self, cause: str) -> float:
        """Give the seconds of one cause, of waits that are over and others."""
        seconds: float = getattr(self.wait, cause) + getattr(self.still, cause)
        return seconds

    def note_open(self, waits: Iterable[tuple[float, Split]]) -> None:
        """Take all waits that are not over now: how long they are, and what for."""
        seconds, split = 0.0, Split()
        for open_s, part in waits:
            seconds += open_s
            split.add(part)
        with self.guard:
            self.open_s, self.still = seconds, split

    def note_work(self, timings: Timings, parcels: int) -> None:
        self.work.add(timings, parcels)
        if timings.samples:
            self.fetched.append(timings.fetch_s / timings.samples)

    def note_slowest(
        self, timings: Timings, indices: Any, position: int, *, worker: int | None
    ) -> None:
        """Take the slowest sample of a batch. By who holds the guard."""
        index: Any = None  # of a stream
        if type(indices) in (int, str):  # `batch_size=None`
            index = indices
        else:
            with suppress(Exception):  # indices are the user's: anything
                index = indices[timings.slowest]
        self.note_slow(SlowSample(timings.slowest_s, _plain(index), position, worker))

    def note_slow(self, sample: SlowSample) -> None:
        """Keep a sample if it is among the slowest; the same one once."""
        slowest = self.slowest
        if len(slowest) == self.limits.slow_samples and sample.seconds <= slowest[0].seconds:
            return
        for at, other in enumerate(slowest):
            same = other.index == sample.index
            if same and (sample.index is not None or other.position == sample.position):
                if other.seconds >= sample.seconds:
                    return
                del slowest[at]
                break
        insort(slowest, sample, key=lambda each: each.seconds)
        del slowest[: -self.limits.slow_samples]

    def note_places(self, found: tuple[tuple[str, int], ...]) -> None:
        """Count lines of code that samples were found in."""
        with self.guard:
            self.places.update(dict(found))
            if len(self.places) > self.limits.lines_of_code:
                self.places = Counter(dict(self.places.most_common(self.limits.lines_of_code // 2)))

    def note_memory(self, own_bytes: int) -> None:
        """Take what the largest worker holds of its own."""
        self.trends.own_bytes = max(self.trends.own_bytes, own_bytes)

    def turn_window(self, now: float) -> None:
        """See to it that trends have their windows."""
        before = self._window
        if before is not None and now - before.at < self.limits.trend_window_s:
            return
        self._window = _Sums(now, self.waited_s, self.away_s, self.work.samples, self.work.fetch_s)
        if before is None:
            return
        loaded = self.work.samples - before.samples
        waited_s, away_s = self.waited_s - before.waited_s, self.away_s - before.away_s
        if loaded and waited_s + away_s:
            each_s = (self.work.fetch_s - before.fetch_s) / loaded
            self.trends.add(Window(now, each_s, share_of_time(waited_s, waited_s + away_s)))


def _plain(index: Any) -> int | str | None:
    """Give an index as something that holds nothing of the user's, and can be compared."""
    if index is None or type(index) is int or type(index) is str:
        return index
    with suppress(Exception):  # numpy's and torch's integers
        return as_integer(index)
    with suppress(Exception):
        return repr(index)[:LONGEST]
    return None


class Turnstile:
    """Count the comings and goings of one loop."""

    __slots__ = (
        "_accounts",
        "_fold_s",
        "_folds",
        "_left_at",
        "_most",
        "_overs",
        "_seats",
        "_times",
        "fold_at",
        "told_s",
    )

    def __init__(self, accounts: Accounts, seats: int) -> None:
        self._accounts, self._seats = accounts, max(1, seats)
        self._fold_s, self._most = accounts.limits.fold_s, accounts.limits.unsummed_times
        # When the loop came and when it left, in turns, not yet summed. Numbers: of tuples that
        # live for a while Python's collector would take note, and go through all it has.
        self._times: list[float] = []
        self._left_at: float | None = None  # the last time that is summed
        self._folds = False
        self._overs = 0  # calls that brought the end of an epoch, not yet summed
        self.fold_at = 0.0  # who comes at or after it calls `fold`
        # Seconds of the waits not yet summed whose cause was told elsewhere. In the others the loop
        # had its batch opened, most of the time in all of it: they need no more than to be counted.
        self.told_s = 0.0

    def count(self, came_at: float, left_at: float) -> None:
        """Take one call of `next`."""
        times = self._times
        times.extend((came_at, left_at))  # in one: a signal's handler may `fold`
        if left_at >= self.fold_at or len(times) >= self._most:
            self.fold(left_at)

    def fold(self, now: float) -> None:
        """Sum what was counted. Signal handlers and other threads may come at any time."""
        with self._accounts.guard:
            if self._folds:  # a signal came in the middle of it
                return
            self._folds = True
            try:
                self._fold(now)
            finally:
                self._folds = False

    def _fold(self, now: float) -> None:
        self.fold_at = now + self._fold_s
        accounts = self._accounts
        times = self._times[:]
        if times:
            del self._times[: len(times)]
            self.add(times[::2], times[1::2])
        if accounts.fetched:
            fetched, accounts.fetched = accounts.fetched, array("d")
            accounts.sample_s.add_all(fetched)
        accounts.turn_window(now)

    def add(self, came: list[float], left: list[float], first: Sequence[int] = ()) -> None:
        """Sum several calls of `next`, of which each one left before the next one came. `first`:
        which of them, in order, were the first of an epoch."""
        accounts = self._accounts
        waits = array("d", map(sub, left, came))
        if self._left_at is None:
            aways = array("d", map(sub, came[1:], left))
        else:
            aways = array("d", map(sub, came, [self._left_at, *left]))
        for at in reversed(first):  # time between two epochs is not work of the loop
            if at or self._left_at is not None:
                del aways[at if self._left_at is not None else at - 1]
        self._left_at = left[-1]
        waited_s, away_s = sum(waits), sum(aways)
        accounts.batches += len(waits) - self._overs
        self._overs = 0
        accounts.wait.transport += waited_s - self.told_s
        self.told_s = 0.0
        accounts.waited_s += waited_s
        accounts.away_s += away_s
        accounts.seat_s += (waited_s + away_s) * self._seats
        accounts.waits.add_all(waits)
        accounts.aways.add_all(aways)

    def pause(self, now: float) -> None:
        """Sum, and forget when the loop left: time between two epochs is not work of the loop."""
        if self._times:
            self.fold(now)
        self._left_at, self.fold_at = None, now + self._fold_s

    def began(self, seconds: float, sampler_s: float = 0.0) -> None:
        """Count what `iter` took, the sampler's part of it included: the loop waited for it."""
        with self._accounts.guard:
            self.note_begun(seconds, sampler_s)

    def note_begun(self, seconds: float, sampler_s: float) -> None:
        """Count the same, by who holds the guard."""
        accounts, split = self._accounts, self._accounts.wait
        accounts.waited_s += seconds
        accounts.seat_s += seconds * self._seats
        accounts.epochs += 1
        split.sampler += sampler_s
        split.startup += seconds - sampler_s

    def over(self, epochs: int = 1) -> None:
        """Know that the call of `next` that is counted next brings the end of the epoch; or that so
        many of them do."""
        with self._accounts.guard:
            self._overs += epochs
            self._accounts.epochs_ended += epochs

    def ended(self, seconds: float) -> None:
        """Count what it took to end an epoch, beyond the last answer."""
        with self._accounts.guard:
            self._wait(seconds)
            self._accounts.wait.ending += seconds

    def _wait(self, seconds: float) -> None:
        self._accounts.waited_s += seconds
        self._accounts.seat_s += seconds * self._seats
