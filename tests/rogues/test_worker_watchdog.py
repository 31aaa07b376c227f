"""What happens to workers while the training step keeps the loop away."""

from __future__ import annotations

import logging
import multiprocessing
import os
import signal
import socket
import threading
import time
from typing import Any

import pytest
import torch

from antifreeze import DataLoader
from antifreeze._core.limits import LIMITS
from antifreeze._engine import worker_watchdog
from antifreeze._engine.worker_watchdog import Watchdog

from ..other_limits import other_limits
from ..patience import PATIENCE_S


class Slow:
    """Batches that take long enough for a worker to be killed in the middle of one."""

    def __len__(self) -> int:
        return 40

    def __getitem__(self, index: int) -> torch.Tensor:
        time.sleep(0.05)
        return torch.full((20_000,), index)


def wait_until(condition: Any) -> bool:
    give_up = time.monotonic() + PATIENCE_S
    while time.monotonic() < give_up:
        if condition():
            return True
        time.sleep(0.01)
    return False


def watchdogs() -> list[threading.Thread]:
    named = [t for t in threading.enumerate() if t.name == "antifreeze-watchdog"]
    return [t for t in named if t.native_id is not None]  # else it is about to start


def test_a_death_is_noticed_while_the_loop_is_away(caplog: pytest.LogCaptureFixture) -> None:
    loader = DataLoader(Slow(), num_workers=2)
    iterator = iter(loader)
    got = [int(next(iterator)[0, 0])]
    with caplog.at_level(logging.WARNING, logger="antifreeze"):
        os.kill(iterator._workers[1].pid, signal.SIGKILL)
        # The loop does nothing at all, and yet:
        assert wait_until(lambda: "is killed by signal" in caplog.text)
    assert iterator.snapshot().supervisor.faults_seen == 1
    got += [int(batch[0, 0]) for batch in iterator]
    assert got == list(range(40))


def test_no_worker_is_forked_while_the_loop_is_away() -> None:
    iterator = iter(DataLoader(Slow(), num_workers=1))
    got = [int(next(iterator)[0, 0])]
    first = iterator._workers[0].pid
    os.kill(first, signal.SIGKILL)
    assert wait_until(lambda: iterator.snapshot().supervisor.faults_seen == 1)
    assert iterator._workers[0].pid == first  # a fork from here could copy a lock we hold
    got += [int(batch[0, 0]) for batch in iterator]
    assert iterator._workers == [] or iterator._workers[0].pid != first
    assert got == list(range(40))


def test_the_watchdog_sleeps_and_ends_with_its_iterator() -> None:
    assert not watchdogs()
    iterator = iter(DataLoader(Slow(), num_workers=1))
    next(iterator)
    assert wait_until(watchdogs)
    (dog,) = watchdogs()
    path = f"/proc/self/task/{dog.native_id}/status"

    def woken() -> int:
        with open(path) as status:
            lines = [line for line in status if line.startswith("voluntary_ctxt_switches")]
        return int(lines[0].split()[1])

    time.sleep(0.2)
    before, seconds = woken(), 2.0
    time.sleep(seconds)
    assert woken() - before <= 10 * seconds / LIMITS.away.tick_s
    iterator._shutdown_workers()
    assert not watchdogs()


def test_without_workers_there_is_no_watchdog() -> None:
    iterator = iter(DataLoader(Slow()))
    next(iterator)
    time.sleep(5 * LIMITS.away.after_s)
    assert not watchdogs()


def test_an_epoch_that_is_over_at_once_needs_no_watchdog(monkeypatch: pytest.MonkeyPatch) -> None:
    began = []
    monkeypatch.setattr(worker_watchdog, "_run", lambda *_: began.append(1))
    loader = DataLoader(list(range(8)), num_workers=1)
    loader._limits = other_limits(away={"after_s": 1.0})
    for _ in range(2):
        assert len(list(loader)) == 8
    time.sleep(1.2)
    assert not began


def test_a_default_timeout_for_sockets_is_not_meant_for_ours() -> None:
    before = socket.getdefaulttimeout()
    socket.setdefaulttimeout(0.2)
    try:
        loader = DataLoader(Slow(), num_workers=1, persistent_workers=True)
        iterator = iter(loader)
        next(iterator)
        first = iterator._workers[0].pid
        time.sleep(1.0)  # the worker waits longer than that
        assert len(list(iterator)) == 39
        assert iterator._workers[0].pid == first
    finally:
        socket.setdefaulttimeout(before)


class Counted:
    """Batches of very many indices; counts what its worker has loaded."""

    def __init__(self) -> None:
        self.loaded = multiprocessing.Value("i", 0)

    def __len__(self) -> int:
        return 8 * 200_000

    def __getitems__(self, indices: list[int]) -> list[int]:
        with self.loaded.get_lock():
            self.loaded.value += 1
        return indices[:1]


def test_tickets_too_long_for_the_channel_are_sent_while_the_loop_is_away() -> None:
    dataset = Counted()
    iterator = iter(DataLoader(dataset, 200_000, num_workers=1))
    got = [int(next(iterator)[0])]
    # The loop does nothing at all, and yet the window is filled again:
    assert wait_until(lambda: dataset.loaded.value == 3)
    got += [int(batch[0]) for batch in iterator]
    assert got == list(range(0, 8 * 200_000, 200_000))


def test_workers_are_kept_when_an_epoch_begins_while_they_are_looked_after() -> None:
    loader = DataLoader(range(8), num_workers=2, persistent_workers=True)
    list(loader)
    iterator = loader._iterator
    assert iterator is not None
    driver, inside = iterator._driver, threading.Event()

    def look_after() -> None:
        with driver._lock:
            driver._whole = False  # in the middle of a step
            inside.set()
            time.sleep(0.2)
            driver._whole = True

    looks = threading.Thread(target=look_after)
    looks.start()
    inside.wait()
    list(loader)
    looks.join()
    assert loader._iterator is iterator
    loader._iterator = None


def test_a_thread_that_is_about_to_begin_does_not_spoil_the_end() -> None:
    """Python gives a thread its number a moment before it may be joined."""

    class Quiet:
        closed = False

        def look_after(self) -> None:
            pass

        def wait(self, timeout_s: float) -> None:
            pass

        def pause(self, timeout_s: float) -> None:
            pass

        def end(self) -> None:
            pass

        def close(self) -> None:
            pass

    quiet = Quiet()
    watchdog = Watchdog(quiet, quiet)
    watchdog._thread._ident = 1
    watchdog.close()
