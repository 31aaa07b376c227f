"""A real run with processes is recorded and replayed through the core to the same commands.

So every start, send, kill and delivery of the real driver was a command of the core, and the core
decided by nothing but its events and the time.
"""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import pytest
import torch
from torch.utils.data import IterableDataset

from antifreeze import DataLoader
from antifreeze._core import commands as do
from antifreeze._core.inspection.event_log import Entry
from antifreeze._core.limits import LIMITS, RecordLimits
from antifreeze._core.supervisor import Supervisor
from antifreeze._engine.iterator import LoaderIterator
from antifreeze._processes import process_backend


class RecordedLoader(DataLoader[Any]):
    """A loader that keeps all events."""

    _limits = replace(LIMITS, records=RecordLimits(event_log_entries=None))


class Numbers:
    def __len__(self) -> int:
        return 60

    def __getitem__(self, index: int) -> int:
        return index


class KillsItsWorkerOnce(Numbers):
    """Ends its process at one sample, the first time it is loaded."""

    def __init__(self, mark: str) -> None:
        self.mark = mark

    def __getitem__(self, index: int) -> int:
        if index == 17:
            try:
                os.close(os.open(self.mark, os.O_CREAT | os.O_EXCL))
                os.kill(os.getpid(), signal.SIGKILL)
            except FileExistsError:
                pass
        return index


class Stream(IterableDataset[int]):
    def __iter__(self) -> Iterator[int]:  # antifreeze: allow[iterable-in-every-worker]
        return iter(range(7))


class Recorder:
    """Keeps the whole story of a loader, and what was really done to processes."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.done: list[tuple[str, int, int]] = []
        self.drivers: list[Any] = []
        real = process_backend.ProcessBackend
        recorder = self

        class Watched(real):
            def start(self, seat: int, life: int, *rest: Any) -> None:
                recorder.done.append(("StartLife", seat, life))
                super().start(seat, life, *rest)

            def send(self, seat: int, life: int, *rest: Any) -> None:
                recorder.done.append(("SendTickets", seat, life))
                super().send(seat, life, *rest)

            def stop(self, seat: int, life: int) -> None:
                recorder.done.append(("StopLife", seat, life))
                super().stop(seat, life)

        monkeypatch.setattr(process_backend, "ProcessBackend", Watched)

    def watch(self, iterator: LoaderIterator) -> LoaderIterator:
        self.drivers.append(iterator._driver)
        return iterator


@pytest.fixture
def recorder(monkeypatch: pytest.MonkeyPatch) -> Recorder:
    return Recorder(monkeypatch)


def replay(supervisor: Supervisor) -> tuple[list[Entry], list[do.Command]]:
    """Feed the recorded events to a new core; every answer must be the recorded one."""
    fresh = Supervisor(supervisor.plan)
    entries = list(supervisor.event_log)
    commanded: list[do.Command] = []
    for entry in entries:
        commands = tuple(fresh.handle(entry.event, entry.at))
        assert commands == entry.commands, f"at {entry}"
        assert list(fresh.check()) == []
        commanded.extend(commands)
    return entries, commanded


def assert_done_is_what_was_commanded(recorder: Recorder, commanded: list[do.Command]) -> None:
    kinds = (do.StartLife, do.SendTickets, do.StopLife)
    asked = [(type(c).__name__, c.seat, c.life) for c in commanded if isinstance(c, kinds)]
    assert recorder.done == asked


def test_a_healthy_epoch(recorder: Recorder) -> None:
    loader = RecordedLoader(Numbers(), batch_size=4, num_workers=2)
    iterator = recorder.watch(iter(loader))
    got = torch.cat(list(iterator)).tolist()
    assert got == list(range(60))
    _, commanded = replay(recorder.drivers[0].supervisor)
    assert_done_is_what_was_commanded(recorder, commanded)
    assert sum(len(c.numbers) for c in commanded if isinstance(c, do.Deliver)) == 15


def test_an_epoch_in_which_a_worker_is_killed(recorder: Recorder, tmp_path: Any) -> None:
    loader = RecordedLoader(KillsItsWorkerOnce(str(tmp_path / "mark")), batch_size=4, num_workers=2)
    iterator = recorder.watch(iter(loader))
    got = torch.cat(list(iterator)).tolist()
    assert got == list(range(60))
    _, commanded = replay(recorder.drivers[0].supervisor)
    assert_done_is_what_was_commanded(recorder, commanded)
    assert sum(isinstance(c, do.StartLife) for c in commanded) == 3


def test_persistent_workers_with_an_early_break(recorder: Recorder) -> None:
    loader = RecordedLoader(Numbers(), batch_size=4, num_workers=2, persistent_workers=True)
    recorder.watch(iter(loader))
    for place, _ in enumerate(loader):
        if place == 3:
            break
    assert torch.cat(list(loader)).tolist() == list(range(60))
    loader._iterator = None
    _, commanded = replay(recorder.drivers[0].supervisor)
    assert_done_is_what_was_commanded(recorder, commanded)
    assert sum(isinstance(c, do.BeginEpoch) for c in commanded) == 4


def test_streams(recorder: Recorder) -> None:
    loader = RecordedLoader(Stream(), batch_size=2, num_workers=2)
    iterator = recorder.watch(iter(loader))
    assert sorted(torch.cat(list(iterator)).tolist()) == sorted([*range(7), *range(7)])
    _, commanded = replay(recorder.drivers[0].supervisor)
    assert_done_is_what_was_commanded(recorder, commanded)


def test_kept_batches_and_a_fork(recorder: Recorder) -> None:
    rows = torch.arange(60 * 4000).reshape(60, 4000)
    loader = RecordedLoader(rows, batch_size=4, num_workers=2, prefetch_factor=1)
    iterator = recorder.watch(iter(loader))
    kept = []
    for place, batch in enumerate(iterator):
        kept.append(batch)
        if place == 5:
            kept.clear()
        if place == 8:
            child = os.fork()
            if not child:
                os._exit(0)
            os.waitpid(child, 0)
    _, commanded = replay(recorder.drivers[0].supervisor)
    assert_done_is_what_was_commanded(recorder, commanded)
    assert any(isinstance(c, do.Deliver) and c.copied for c in commanded)
    assert torch.equal(torch.cat(kept), rows[24:])
