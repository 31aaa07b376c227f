"""Slow samples among cheap ones, and lines of code: found by looks, with workers and without."""

from __future__ import annotations

import fcntl
import multiprocessing
import sys
import threading
import time
import weakref
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from torch.utils.data import Dataset, IterableDataset

from antifreeze import DataLoader
from antifreeze._core.batch_timings import Timings
from antifreeze._core.health.worker_phases import COLLATE, SAMPLE, WHOLE
from antifreeze._engine import main_process_monitor
from antifreeze._loading.line_profiler import SamplingProfiler, at_any_moment, place_of
from antifreeze._loading.observations import FOR_A_LOCK

from ..patience import PATIENCE_S

SLOW = 333  # the index of the slow sample
SLOW_S = 0.12
ENOUGH_LOOKS = 15  # that chance does not decide which line most of them fell on


class OneSlow(Dataset[int]):
    """Cheap samples, and one that takes a tenth of a second."""

    def __init__(self, length: int = 2_000, slow_s: float = SLOW_S) -> None:
        self.length, self.slow_s = length, slow_s

    def __len__(self) -> int:
        return self.length

    def __getitem__(self, index: int) -> int:
        if index == SLOW:
            time.sleep(self.slow_s)
        return index


class Computes(OneSlow):
    """The slow one keeps the interpreter's lock: nobody can look meanwhile."""

    def __getitem__(self, index: int) -> int:
        return sum(range(20_000_000)) if index == SLOW else index


def slowest(loader: DataLoader[Any]) -> tuple[Any, float]:
    found = loader._entry.accounts.slowest[-1]
    return found.index, found.seconds


@pytest.mark.parametrize("workers", [0, 1, 2])
@pytest.mark.parametrize("batch_size", [1, 4, 64])
def test_a_slow_sample_among_cheap_ones_is_always_found(workers: int, batch_size: int) -> None:
    for _ in range(3):
        loader = DataLoader(OneSlow(), batch_size, num_workers=workers)
        list(loader)
        index, seconds = slowest(loader)
        assert index == SLOW
        assert 0.5 * SLOW_S < seconds < 5 * SLOW_S
    assert f"sample {SLOW} took" in str(loader.explain())


@pytest.mark.parametrize("workers", [0, 1])
def test_it_is_found_in_a_later_epoch_of_a_loop_that_was_cheap(workers: int) -> None:
    data = OneSlow(slow_s=0.0)
    loader = DataLoader(data, 4, num_workers=workers)
    list(loader)
    data.slow_s = SLOW_S
    list(loader)
    assert slowest(loader)[0] == SLOW


@pytest.mark.parametrize("workers", [0, 1])
def test_one_that_keeps_the_interpreters_lock_is_found_as_well(workers: int) -> None:
    loader = DataLoader(Computes(), 64, num_workers=workers)
    list(loader)
    # One of the slowest: on a busy machine the very first sample may in truth take longer.
    assert SLOW in [found.index for found in loader._entry.accounts.slowest]


@pytest.mark.parametrize("workers", [0, 1])
def test_where_the_sampler_gives_single_indices_they_are_the_names(workers: int) -> None:
    loader = DataLoader(OneSlow(400), batch_size=None, num_workers=workers)
    list(loader)
    assert slowest(loader)[0] == SLOW


def test_a_worker_that_had_nothing_to_do_is_looked_at_as_soon_as_it_has() -> None:
    loader = DataLoader(OneSlow(SLOW + 8), 4, num_workers=1, prefetch_factor=1)
    for number, _ in enumerate(loader):
        if number > SLOW // 4 - 4:
            time.sleep(0.3)
    assert slowest(loader)[0] == SLOW


@pytest.mark.parametrize("workers", [0, 1])
def test_a_slow_sample_of_a_stream_is_known_by_its_batch(workers: int) -> None:
    class Stream(IterableDataset[int]):
        def __iter__(self) -> Iterator[int]:  # antifreeze: allow[iterable-in-every-worker]
            for number in range(400):
                time.sleep(SLOW_S * (number == SLOW))
                yield number

    loader = DataLoader(Stream(), 4, num_workers=workers)
    list(loader)
    found = loader._entry.accounts.slowest[-1]
    assert (found.index, found.position) == (None, SLOW // 4)


# ---- without workers -----------------------------------------------------------------------------


class Naps(Dataset[torch.Tensor]):
    def __init__(self, length: int = 60) -> None:
        self.length = length

    def __len__(self) -> int:
        return self.length

    def __getitem__(self, index: int) -> torch.Tensor:
        return self.decode(index)

    def decode(self, index: int) -> torch.Tensor:
        time.sleep(0.01)
        return torch.zeros(4)


@pytest.mark.parametrize("batch_size", [1, 4, None])
def test_without_workers_the_line_where_samples_take_their_time_is_named(
    batch_size: int | None,
) -> None:
    loader = DataLoader(Naps(), batch_size)
    list(loader)
    told = loader.explain()
    assert "it loads its samples itself in test_line_profiler.py:" in told.sentence
    assert " in decode" in told.sentence


class LoopThenCall(OneSlow):
    """All of the time goes into a loop of Python's; the call into a library that follows it is
    where the interpreter's lock is given away."""

    def __getitem__(self, index: int) -> torch.Tensor:
        total = 0
        for number in range(40_000): total += number  # all of it  # fmt: skip  # noqa: E701
        return torch.zeros(4096) + total


@pytest.mark.parametrize("workers", [0, 1])
def test_the_line_that_takes_the_time_is_named_and_not_the_one_that_lets_others_look(
    workers: int,
) -> None:
    loader = DataLoader(LoopThenCall(600), 8, num_workers=workers)
    counted = loader._entry.accounts.places
    deadline = time.monotonic() + PATIENCE_S
    while counted.total() < ENOUGH_LOOKS and time.monotonic() < deadline:
        list(loader)
        counted = loader._entry.accounts.places
    lines = Path(__file__).read_text().splitlines()
    (number,) = [
        at
        for at, line in enumerate(lines, 1)
        if line.endswith("# all of it  # fmt: skip" + "  # noqa: E701")
    ]
    (place, looks), *_ = counted.most_common()
    assert place == f"test_line_profiler.py:{number} in __getitem__"
    assert looks > 0.6 * counted.total(), counted


def test_threads_take_turns_as_before_after_a_look() -> None:
    before = sys.getswitchinterval()
    at_any_moment()
    assert sys.getswitchinterval() == before
    begun = threading.Event()

    def look() -> None:
        begun.set()
        for _ in range(20):
            at_any_moment()

    thread = threading.Thread(target=look)
    thread.start()
    begun.wait()
    try:
        while thread.is_alive():  # what the program sets meanwhile stays
            sys.setswitchinterval(0.002)
        sys.setswitchinterval(0.002)
        at_any_moment()
        assert sys.getswitchinterval() == pytest.approx(0.002)
    finally:
        thread.join()
        sys.setswitchinterval(before)


def test_a_loop_that_is_not_over_is_told_with_its_line() -> None:
    class Stuck(Naps):
        def decode(self, index: int) -> torch.Tensor:
            time.sleep(3)
            return torch.zeros(4)

    loader = DataLoader(Stuck(1))
    thread = threading.Thread(target=lambda: list(loader))
    thread.start()
    time.sleep(2)
    sentence = loader.explain().sentence
    thread.join()
    assert "the loop waits for data now" in sentence
    assert " in decode" in sentence


def test_nothing_of_a_sample_is_kept_alive_by_looks() -> None:
    alive: weakref.WeakSet[torch.Tensor] = weakref.WeakSet()
    most = 0

    class Holds(Naps):
        def decode(self, index: int) -> torch.Tensor:
            nonlocal most
            most = max(most, len(alive))
            held = torch.zeros(3)
            alive.add(held)
            time.sleep(0.01)
            return torch.zeros(4)

    list(DataLoader(Holds(100), 4))
    assert most == 0


def test_batches_of_one_cheap_sample_are_not_looked_at_closely(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    loader = DataLoader(range(30_000))
    list(loader)
    looked: list[int] = []
    monkeypatch.setattr(SamplingProfiler, "note", lambda *about: looked.append(1))
    for _ in range(3):
        list(loader)
    assert not looked
    post = main_process_monitor.LoadingPost(loader._entry.accounts)
    assert not post.is_worth_looks
    post.leave()


def test_a_loop_that_is_away_for_long_is_looked_at_rarely() -> None:
    post = main_process_monitor.LoadingPost(DataLoader(Naps())._entry.accounts)
    post.leave()  # nobody else looks at it
    time.sleep(0.1)
    now = time.monotonic()
    assert post.look(now) and post.look(now + 9.0)
    assert not post.look(now + 11.0)
    post.steps[0] = SAMPLE
    assert post.look(now + 12.0)


# ---- what looks show -----------------------------------------------------------------------------


def test_the_sample_with_most_looks_is_the_slowest_and_has_its_share_of_the_time() -> None:
    looks = SamplingProfiler()
    for step in (SAMPLE, SAMPLE + 3, SAMPLE + 3, SAMPLE + 7):
        looks.note(5, step)
    found = looks.with_slowest(Timings(fetch_s=0.4, samples=8), 5)
    assert (found.slowest, found.slowest_s) == (3, pytest.approx(0.2))
    assert looks.with_slowest(Timings(fetch_s=0.4, samples=8), 6).slowest_s == 0.0
    looks.note(6, SAMPLE + 1)
    assert looks.with_slowest(Timings(fetch_s=0.4, samples=8), 6).slowest == 1


def test_looks_at_what_is_no_sample_say_nothing_of_samples() -> None:
    looks = SamplingProfiler()
    for step in (COLLATE, WHOLE, 0):
        looks.note(1, step)
        looks.note_line(step, sys._getframe())
    assert looks.with_slowest(Timings(fetch_s=0.4, samples=8), 1).slowest_s == 0.0
    assert [count for _, count in looks.take_places()] == [1]
    assert not looks.any_places
    assert "ticket 0" in repr(looks)


def _by_with(lock: Any, _: int, go: threading.Event) -> None:
    go.set()
    with lock:
        pass


def _by_acquire(lock: Any, _: int, go: threading.Event) -> None:
    go.set()
    lock.acquire()
    lock.release()


def _by_flock(_: Any, file: int, go: threading.Event) -> None:
    go.set()
    fcntl.flock(file, fcntl.LOCK_EX)


def _inside(lock: Any, _: int, go: threading.Event) -> None:
    go.set()
    time.sleep(0.5)


@pytest.mark.parametrize(
    ("load", "waits"), [(_by_with, True), (_by_acquire, True), (_by_flock, True), (_inside, False)]
)
def test_a_line_that_waits_for_a_lock_is_marked(load: Any, waits: bool, tmp_path: Path) -> None:
    lock, go = multiprocessing.Lock(), threading.Event()
    with (tmp_path / "lock").open("w") as held, (tmp_path / "lock").open("w") as other:
        fcntl.flock(held, fcntl.LOCK_EX)
        with lock:
            thread = threading.Thread(target=load, args=(lock, other.fileno(), go))
            thread.start()
            go.wait(PATIENCE_S)
            place = _until_it_waits(thread)
        fcntl.flock(held, fcntl.LOCK_UN)
        thread.join(PATIENCE_S)
    assert place.startswith("test_line_profiler.py:") and f" in {load.__name__}" in place
    assert place.endswith(FOR_A_LOCK) == waits


def _until_it_waits(thread: threading.Thread) -> str:
    """Return where a thread is when it has stayed there for a while."""
    assert thread.ident is not None
    place, give_up = "", time.monotonic() + PATIENCE_S
    while time.monotonic() < give_up:
        before, place = place, place_of(sys._current_frames()[thread.ident]) or ""
        if place == before:
            return place
        time.sleep(0.05)
    raise AssertionError(f"it never waits: {place}")
