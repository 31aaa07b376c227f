"""Moments: the first batch, the change of epochs, leaving the loop. In seconds; less is better."""

from __future__ import annotations

import statistics
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import psutil
import torch
from contenders import Contender
from lanes import Lane, LaneFailed
from loops import touch
from torch.utils.data import Dataset
from workloads import WORKLOADS, Workload

ROUNDS, ROUNDS_QUICK = 5, 1
BALLAST_BYTES = 2 << 30
# Epochs of this many batches of tokens; a loop that is left early is left after LEAVE_AFTER.
BATCHES, LEAVE_AFTER = 20, 5
# In the busy workload every sample but those of the first batches takes this long.
BUSY_SAMPLE_S = 2.0
_PEERS = ("stateful", "nodes-process", "nodes-thread")
_STREAMS = ("spdl-thread", "spdl-subprocess", "spdl-process", "grain")

Steps = Callable[[Contender], Iterator[float]]


@dataclass(frozen=True, slots=True)
class Moment:
    """One thing to time, for whom, and who is compared with whom for the bar."""

    key: str
    what: str
    steps: Steps
    contenders: tuple[str, ...]
    ours: str
    theirs: str
    within_s: float | None = None  # the bar, where it is not the other's time


@dataclass(slots=True)
class Times:
    """What one contender needed for one moment: seconds, a number a round."""

    contender: str
    seconds: list[float] = field(default_factory=list)
    error: str = ""

    @property
    def median_s(self) -> float | None:
        """Return the median, or None where there is no figure."""
        return statistics.median(self.seconds) if self.seconds else None


class Busy(Dataset[torch.Tensor]):
    """The first samples come at once; whoever leaves then finds the workers busy."""

    def __len__(self) -> int:
        return BATCHES

    def __getitem__(self, index: int) -> torch.Tensor:
        if index >= 2:
            time.sleep(BUSY_SAMPLE_S)
        return torch.tensor(index)


class Few(Dataset[int]):
    """Almost nothing to send."""

    def __init__(self, sample_s: float = 0.0, length: int = 100_000) -> None:
        self.sample_s, self.length = sample_s, length

    def __len__(self) -> int:
        return self.length

    def __getitem__(self, index: int) -> int:
        if self.sample_s:
            time.sleep(self.sample_s)
        return index


def _tokens() -> tuple[Workload, Dataset[Any]]:
    known = next(each for each in WORKLOADS if each.name == "tokens")
    workload = replace(known, batches=BATCHES)
    return workload, workload.dataset(workload.samples)


def first_batch(ballast_bytes: int) -> Steps:
    """Time a new loader to its first batch, once, in a process that holds so much memory."""

    def steps(contender: Contender) -> Iterator[float]:
        contender.load()
        ballast = torch.ones(ballast_bytes, dtype=torch.uint8)
        workload, dataset = _tokens()
        begin = time.perf_counter()
        loader = contender.make(dataset, workload)
        iterator = iter(loader)
        touch(next(iterator))
        yield time.perf_counter() - begin
        del iterator, loader, ballast

    return steps


def epoch_change(after: int) -> Steps:
    """Time the last batch wanted of an epoch to the first of the next, again and again."""

    def steps(contender: Contender) -> Iterator[float]:
        workload, dataset = _tokens()
        loader = contender.make(dataset, workload)
        while True:
            for number, batch in enumerate(loader, 1):
                touch(batch)
                if number == after:
                    begin = time.perf_counter()
                    if after < BATCHES:
                        break
            for batch in loader:
                touch(batch)
                seconds = time.perf_counter() - begin
                break
            yield seconds
            if not contender.restarts:  # a stream goes on where it was left
                for batch in loader:
                    touch(batch)

    return steps


def small_epochs(epochs: int, batches: int) -> Steps:
    """Time so many epochs of a few batches of four integers."""

    def steps(contender: Contender) -> Iterator[float]:
        workload = Workload("small", "", 4, batches, lambda _: Few(length=4 * batches))
        loader = contender.make(Few(length=4 * batches), workload)
        while True:
            begin = time.perf_counter()
            for _ in range(epochs):
                for batch in loader:
                    touch(batch)
            yield time.perf_counter() - begin

    return steps


def beside_a_thread(contender: Contender) -> Iterator[float]:
    """Time new loaders to their first batch in a program that has another thread."""
    threading.Thread(target=threading.Event().wait, daemon=True).start()
    workload = Workload("few", "", 4, BATCHES, lambda _: Few())
    while True:
        begin = time.perf_counter()
        iterator = iter(contender.make(Few(), workload))
        touch(next(iterator))
        yield time.perf_counter() - begin
        del iterator


def replaced(contender: Contender) -> Iterator[float]:
    """Time the end of a worker to a batch of the one that replaces it, where much is held."""
    ballast = torch.ones(2 * BALLAST_BYTES, dtype=torch.uint8)
    loader = contender.make(Few(0.001), Workload("few", "", 4, BATCHES, lambda _: Few()))
    iterator = iter(loader)
    touch(next(iterator))
    while len(ballast):
        ended = iterator._workers[0]
        ended.kill()
        ended.join(10)
        begin = time.perf_counter()
        while iterator._workers[0].pid in (ended.pid, None):
            touch(next(iterator))
        yield time.perf_counter() - begin


def leaving(contender: Contender) -> Iterator[float]:
    """Time how long a `break` takes while the workers are busy."""
    workload = Workload("busy", "", 1, BATCHES, lambda _: Busy())
    loader = contender.make(Busy(), workload)
    for batch in loader:
        touch(batch)
        begin = time.perf_counter()
        break
    yield time.perf_counter() - begin


_AS_WRITTEN = ("torch-plain", "antifreeze-plain")
_KEPT = ("torch", "antifreeze")
_WITHOUT = ("torch-0", "antifreeze-0")
MOMENTS = (
    Moment(
        "first-batch",
        "first batch of a new loader",
        first_batch(0),
        (*_AS_WRITTEN, *_PEERS, *_STREAMS),
        *reversed(_AS_WRITTEN),
    ),
    Moment(
        "first-batch-2gib",
        "first batch, 2 GiB in the process",
        first_batch(BALLAST_BYTES),
        (*_AS_WRITTEN, *_PEERS),
        *reversed(_AS_WRITTEN),
    ),
    Moment(
        "change-kept",
        "last batch to the next epoch's first, workers kept",
        epoch_change(BATCHES),
        (*_KEPT, "stateful", *_STREAMS),
        *reversed(_KEPT),
    ),
    Moment(
        "change-new",
        "last batch to the next epoch's first, new workers",
        epoch_change(BATCHES),
        (*_AS_WRITTEN, "nodes-process", "nodes-thread"),
        *reversed(_AS_WRITTEN),
    ),
    Moment(
        "break-kept",
        "`break` to the next epoch's first batch, workers kept",
        epoch_change(LEAVE_AFTER),
        (*_KEPT, "stateful"),
        *reversed(_KEPT),
    ),
    Moment(
        "break-new",
        "`break` to the next epoch's first batch, new workers",
        epoch_change(LEAVE_AFTER),
        (*_AS_WRITTEN, "nodes-process", "nodes-thread"),
        *reversed(_AS_WRITTEN),
    ),
    Moment(
        "small-new",
        "10 epochs of four batches of four integers, new workers",
        small_epochs(10, 4),
        _AS_WRITTEN,
        *reversed(_AS_WRITTEN),
    ),
    Moment(
        "small-0",
        "1,000 epochs of two batches of four integers, 0 workers",
        small_epochs(1000, 2),
        _WITHOUT,
        *reversed(_WITHOUT),
    ),
    Moment(
        "small-0-ten",
        "1,000 epochs of ten batches of four integers, 0 workers",
        small_epochs(1000, 10),
        _WITHOUT,
        *reversed(_WITHOUT),
    ),
    Moment(
        "leave-busy",
        "`break` while samples take 2 s, until the loop is left",
        leaving,
        (*_AS_WRITTEN, "nodes-process", "nodes-thread"),
        *reversed(_AS_WRITTEN),
        within_s=0.5,
    ),
    Moment(
        "later-clean",
        "first batch of a later loader, another thread runs",
        beside_a_thread,
        _AS_WRITTEN,
        *reversed(_AS_WRITTEN),
        within_s=0.1,
    ),
    Moment(
        "replaced-4gib",
        "a killed worker to a batch of the new one, 4 GiB in the process",
        replaced,
        ("antifreeze-plain",),
        *reversed(_AS_WRITTEN),
        within_s=0.05,
    ),
)
# Bytes that each of these holds.
_HELD = {"first-batch-2gib": BALLAST_BYTES, "replaced-4gib": 2 * BALLAST_BYTES}
# Each of these is asked once of a new process; the others again and again of one.
_FRESH = {"first-batch", "first-batch-2gib", "leave-busy"}


def measure(moment: Moment, contenders: Sequence[Contender], quick: bool) -> list[Times]:
    """Time one moment for each of the contenders that it is for, in turns."""
    chosen = [each for each in contenders if each.key in moment.contenders]
    times = {each.key: Times(each.key) for each in chosen}
    needed = _HELD.get(moment.key, 0)
    if psutil.virtual_memory().available < 2 * needed:
        return [Times(each.key, error="not enough memory to measure this") for each in chosen]
    lanes: dict[str, Lane] = {}
    try:
        for number in range(ROUNDS_QUICK if quick else ROUNDS):
            turn = number % max(len(chosen), 1)
            for each in chosen[turn:] + chosen[:turn]:
                if not times[each.key].error:
                    _ask(moment, each, lanes, times[each.key])
    finally:
        for lane in lanes.values():
            lane.end()
    return list(times.values())


def _ask(moment: Moment, contender: Contender, lanes: dict[str, Lane], times: Times) -> None:
    key = contender.key
    try:
        if key not in lanes:
            lanes[key] = Lane(lambda: moment.steps(contender))
            if moment.key not in _FRESH:
                lanes[key].ask()  # a warm-up
        times.seconds.append(lanes[key].ask())
        if moment.key not in _FRESH:
            lanes[key].settle()
    except LaneFailed as failure:
        times.error = str(failure)
    if moment.key in _FRESH or times.error:
        lanes.pop(key).end()
