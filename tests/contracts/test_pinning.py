"""Pinning, with a device that only says where and what it was asked to pin."""

from __future__ import annotations

import threading
from typing import Any

import pytest
import torch

from antifreeze import DataLoader
from tests.torch_versions import WARNS_WITHOUT_ACCELERATOR


class FakeDevice:
    """Marks what it pins, and remembers which thread did it."""

    device = "0"

    def __init__(self) -> None:
        self.threads: set[str] = set()
        self.entered = 0
        self.refuses: int | None = None

    def enter_thread(self) -> None:
        self.entered += 1

    def pin(self, batch: Any) -> Any:
        self.threads.add(threading.current_thread().name)
        if self.refuses is not None and int(batch[0]) == self.refuses:
            raise RuntimeError("no more page-locked memory")
        return {"pinned": batch}


@pytest.fixture
def device(monkeypatch: pytest.MonkeyPatch) -> FakeDevice:
    fake = FakeDevice()
    monkeypatch.setattr("antifreeze._engine.pin_memory.AcceleratorPinner", lambda device: fake)
    monkeypatch.setattr(torch.accelerator, "is_available", lambda: True)
    if not WARNS_WITHOUT_ACCELERATOR:  # then torch's loader asks for CUDA
        monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.accelerator, "current_accelerator", lambda: torch.device("cuda"))
    return fake


def test_with_workers_batches_are_pinned_off_the_callers_thread(device: FakeDevice) -> None:
    loader = DataLoader(list(range(20)), batch_size=2, num_workers=2, pin_memory=True)
    got = [batch["pinned"].tolist() for batch in loader]
    assert got == [[i, i + 1] for i in range(0, 20, 2)]
    assert device.threads == {"antifreeze-pin"}
    assert device.entered == 1


def test_without_workers_batches_are_pinned_where_they_are_loaded(device: FakeDevice) -> None:
    got = list(DataLoader(list(range(4)), batch_size=2, pin_memory=True))
    assert [batch["pinned"].tolist() for batch in got] == [[0, 1], [2, 3]]
    assert device.threads == {threading.current_thread().name}


def test_a_batch_that_cannot_be_pinned_is_an_error_in_its_turn(device: FakeDevice) -> None:
    device.refuses = 6
    loader = DataLoader(list(range(20)), batch_size=2, num_workers=2, pin_memory=True)
    iterator, got = iter(loader), []
    with pytest.raises(RuntimeError) as caught:
        while True:
            got.append(next(iterator)["pinned"][0].item())
    assert got == [0, 2, 4]
    assert str(caught.value).startswith("Caught RuntimeError in pin memory thread for device 0.")
    assert [batch["pinned"][0].item() for batch in iterator] == [8, 10, 12, 14, 16, 18]


def test_persistent_workers_keep_their_pinning_thread(device: FakeDevice) -> None:
    loader = DataLoader(
        list(range(8)), batch_size=2, num_workers=2, pin_memory=True, persistent_workers=True
    )
    for _ in range(3):
        assert len(list(loader)) == 4
    assert device.entered == 1
    iterator = loader._iterator
    assert iterator is not None and iterator._pin_memory_thread.is_alive()
    thread = iterator._pin_memory_thread
    loader._iterator = None
    assert not thread.is_alive()
