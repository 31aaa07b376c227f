"""Loops that share a loader, loops that are long, and what creeps in them: on real processes."""

from __future__ import annotations

import logging
import sys
import threading
import time
from collections import Counter
from collections.abc import Iterator
from dataclasses import fields, is_dataclass
from typing import Any, ClassVar

import pytest
import torch
from torch.utils.data import Dataset

from antifreeze import DataLoader
from antifreeze._reporting.wait_totals import CAUSES, Accounts, Split, WorkAccount
from antifreeze.stats import Entry

from ..other_limits import other_limits


class Sleeps(Dataset[int]):
    def __init__(self, length: int, seconds: float) -> None:
        self.length, self.seconds = length, seconds

    def __len__(self) -> int:
        return self.length

    def __getitem__(self, index: int) -> int:
        time.sleep(self.seconds)
        return index


class Creeps(Dataset[int]):
    """Samples that become slower, by far more than a busy machine makes them."""

    def __len__(self) -> int:
        return 360

    def __getitem__(self, index: int) -> int:
        time.sleep(0.002 * (1 + 9 * index / len(self)))
        return index


@pytest.mark.parametrize("workers", [0, 1])
def test_samples_that_become_slower_are_told_of_once(
    workers: int, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.WARNING, "antifreeze"):
        loader = DataLoader(Creeps(), 4, num_workers=workers)
        loader._limits = other_limits(records={"trend_window_s": 0.1, "fold_s": 0.05})
        list(loader)
    told = [line for line in caplog.messages if "times as long as at first" in line]
    assert len(told) == 1
    assert told[0].startswith("antifreeze: samples take ")
    assert "It goes on; `loader.explain()`" in told[0]


@pytest.mark.parametrize("workers", [0, 1])
def test_two_threads_that_loop_over_one_loader_add_up(workers: int) -> None:
    loader = DataLoader(range(3_000), 2, num_workers=workers)
    before = sys.getswitchinterval()
    sys.setswitchinterval(1e-4)  # threads take turns all the time
    took: list[float] = []

    def loop() -> None:
        for _ in range(3):
            began = time.monotonic()
            for _ in loader:
                pass
            took.append(time.monotonic() - began)

    try:
        threads = [threading.Thread(target=loop) for _ in range(2)]
        for thread in threads:
            thread.start()
        while any(thread.is_alive() for thread in threads):
            loader.stats()
            time.sleep(0.002)
        for thread in threads:
            thread.join()
    finally:
        sys.setswitchinterval(before)
    stats = loader.stats()
    assert (stats["epochs"], stats["batches"], stats["samples"]) == (6, 6 * 1_500, 6 * 3_000)
    assert stats["seconds"] == pytest.approx(sum(took), rel=0.05, abs=0.05)
    assert sum(stats[f"wait_{cause}_s"] for cause in CAUSES) == pytest.approx(
        stats["waited_s"], rel=0.001
    )
    assert loader._entry.accounts.waits.count == 6 * 1_501


class Owned:
    """Remember what was set by who did not hold the guard."""

    guard = threading.RLock()
    unguarded: ClassVar[set[str]] = set()

    def __setattr__(self, name: str, value: Any) -> None:
        if not Owned.guard._is_owned():
            Owned.unguarded.add(name)
        super().__setattr__(name, value)


class OwnedSplit(Owned, Split):
    pass


class OwnedWork(Owned, WorkAccount):
    pass


class OwnedAccounts(Owned, Accounts):
    pass


class SlowSampler(Sleeps):
    def __iter__(self) -> Iterator[int]:
        for index in range(self.length):
            time.sleep(self.seconds)
            yield index


class SomeFail(Sleeps):
    def __getitem__(self, index: int) -> int:
        if index < 4:
            raise ValueError
        return super().__getitem__(index)


@pytest.mark.parametrize("workers", [0, 1])
def test_whoever_counts_holds_the_guard(workers: int) -> None:
    sampler = SlowSampler(40, 0.005)
    loader = DataLoader(
        SomeFail(40, 0.02), 2, num_workers=workers, sampler=sampler, on_error="skip"
    )
    counted = OwnedAccounts(guard=Owned.guard, wait=OwnedSplit(), work=OwnedWork())
    loader.__dict__["_counted"] = Entry(loader._profile(), counted, loader._book.tally)
    Owned.unguarded.clear()
    for _ in loader:
        time.sleep(0.001)
    loader.stats()
    assert counted.batches == 18
    assert Owned.unguarded - {"usages"} == set()  # that is nobody's but of who saw it last


@pytest.mark.parametrize("workers", [0, 1])
def test_waits_of_two_loops_that_are_not_over_are_both_told(workers: int) -> None:
    loader = DataLoader(Sleeps(1, 2.0), num_workers=workers)
    threads = [threading.Thread(target=lambda: list(loader)) for _ in range(2)]
    for thread in threads:
        thread.start()
    time.sleep(1.5)
    inside = loader.stats()
    for thread in threads:
        thread.join()
    assert 2.2 < inside["waited_s"] < 4.0
    assert sum(inside[f"wait_{cause}_s"] for cause in CAUSES) == pytest.approx(
        inside["waited_s"], rel=0.02, abs=0.02
    )


def test_a_wait_that_somebody_saw_is_not_counted_twice_when_its_loop_is_gone() -> None:
    loader = DataLoader(Sleeps(1, 1.0))
    thread = threading.Thread(target=lambda: list(loader))
    thread.start()
    time.sleep(0.5)
    assert loader.stats()["waited_s"] > 0.2
    thread.join()
    assert loader.stats()["waited_s"] < 1.4


def size_of(thing: Any) -> int:
    """Give the bytes of something and of all that it holds."""
    size = sys.getsizeof(thing)
    if is_dataclass(thing):
        return size + sum(size_of(getattr(thing, each.name)) for each in fields(thing))
    if isinstance(thing, dict | Counter):
        return size + sum(size_of(k) + size_of(v) for k, v in thing.items())
    if isinstance(thing, str | bytes | int | float | type(None)):
        return size
    if hasattr(thing, "__slots__"):
        return size + sum(size_of(getattr(thing, name)) for name in thing.__slots__)
    try:
        return size + sum(size_of(each) for each in thing)
    except TypeError:
        return size


def test_what_is_counted_does_not_grow_with_a_run() -> None:
    loader = DataLoader(torch.zeros(200_000, 1))
    # As many windows as in days.
    loader._limits = other_limits(records={"trend_window_s": 0.01, "fold_s": 0.01})
    counted: Accounts = loader._entry.accounts
    sizes = []
    for number, _ in enumerate(loader):
        if number % 10_000 == 0:
            sizes.append(size_of(counted))
    assert loader.stats()["batches"] == 200_000
    # Half a byte a batch: of what is seldom, such as times of a busy machine, there is ever more to
    # count, up to a bound; but whatever is kept of each batch takes eight bytes at the least.
    assert max(sizes) < 100_000
    assert size_of(counted) < 100_000
