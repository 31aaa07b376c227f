"""A worker that dies with a lock that all workers share: the others do not wait for ever."""

from __future__ import annotations

import logging
import multiprocessing
import os
import signal
import time
from pathlib import Path
from typing import Any

import pytest

from antifreeze import DataLoader


class Locked:
    """Reads with a lock held; the worker that loads sample 5 dies in there, once."""

    def __init__(self, lock: Any, mark: Path) -> None:
        self.lock, self.mark = lock, mark

    def __len__(self) -> int:
        return 24

    def __getitem__(self, index: int) -> int:
        with self.lock:
            if index == 5 and not self.mark.exists():
                self.mark.touch()
                os.kill(os.getpid(), signal.SIGKILL)
            return index


@pytest.mark.parametrize(
    ("method", "kind", "workers"),
    [("fork", "Lock", 2), ("fork", "RLock", 1), ("spawn", "Lock", 2)],
)
def test_it_is_released_and_said(
    method: str, kind: str, workers: int, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    lock = getattr(multiprocessing.get_context(method), kind)()
    began = time.monotonic()
    with caplog.at_level(logging.WARNING, "antifreeze"):
        loader = DataLoader(
            Locked(lock, tmp_path / "died"),
            batch_size=4,
            num_workers=workers,
            multiprocessing_context=method,
        )
        seen = [int(index) for batch in loader for index in batch]
    assert seen == list(range(24))
    assert time.monotonic() - began < 60  # about seven seconds
    assert "dataset.lock, which nobody will release: worker" in caplog.text
    assert caplog.text.count("It was released, once.") == 1
    assert lock.acquire(timeout=5)  # free, and it can be held
    lock.release()


def test_a_lock_that_this_process_holds_is_left_alone(tmp_path: Path) -> None:
    from antifreeze._loading.job import Job
    from antifreeze._processes import orphaned_locks

    lock = multiprocessing.Lock()
    dataset = Locked(lock, tmp_path / "died")
    job = Job(dataset, False, True, list, False, 2, 0, None)
    address = lock._semlock.handle
    assert orphaned_locks.release(job, address, forked=True) == ""  # it is free
    with lock:
        assert orphaned_locks.release(job, address, forked=True) == ""
        assert orphaned_locks.release(job, address + 64, forked=False) == ""
    with multiprocessing.Lock() as another:  # somebody else's, at another address
        assert another
        assert orphaned_locks.release(job, address + 64, forked=True) == ""
    assert lock.acquire(timeout=1)
    lock.release()


class Careless(Locked):
    """Takes the lock without `with`: the sample that raises keeps it."""

    def __getitem__(self, index: int) -> int:
        self.lock.acquire()
        if index == 5:
            raise OSError("cannot be read")
        self.lock.release()
        return index


def test_a_sample_that_raises_and_keeps_it_costs_itself(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    dataset = Careless(multiprocessing.Lock(), tmp_path / "died")
    loader = DataLoader(
        dataset,
        batch_size=4,
        num_workers=2,
        multiprocessing_context="fork",
    )
    seen, iterator = [], iter(loader)
    for _ in range(6):
        try:
            seen += [int(index) for index in next(iterator)]
        except OSError:
            continue
    assert seen == [*range(4), *range(8, 24)]
    assert "raised, and must have had it. It was released, once." in caplog.text
