"""Tiny batches travel in bundles: same batches, same order, same errors, and nobody waits."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Iterator
from typing import Any

import pytest
import torch
from torch.utils.data import DataLoader as TorchLoader
from torch.utils.data import IterableDataset, get_worker_info

from antifreeze import DataLoader
from antifreeze._core import commands as do
from antifreeze.errors import WorkerCrashed

MANY = 3000
BESIDE_TORCH = 900  # torch's loader takes its time over each


class Numbers:
    def __len__(self) -> int:
        return MANY

    def __getitem__(self, index: int) -> int:
        return index


class WhoLoads(Numbers):
    def __len__(self) -> int:
        return BESIDE_TORCH

    def __getitem__(self, index: int) -> tuple[int, int]:
        info = get_worker_info()
        assert info is not None
        return index, info.id


class Stream(IterableDataset[int]):
    def __iter__(self) -> Iterator[int]:
        info = get_worker_info()
        assert info is not None
        return iter(range(info.id, BESIDE_TORCH, 2 + info.id))


class Fails(Numbers):
    def __getitem__(self, index: int) -> int:
        if index % 700 == 699:
            raise ValueError(f"no sample {index}")
        return index


class EndsItsWorker(Numbers):
    """Ends its process at one sample: once, if there is a mark to remember by, or always."""

    def __init__(self, index: int, mark: str = "") -> None:
        self.index, self.mark = index, mark

    def __getitem__(self, index: int) -> int:
        if index == self.index:
            try:
                if self.mark:
                    os.close(os.open(self.mark, os.O_CREAT | os.O_EXCL))
                os.kill(os.getpid(), signal.SIGKILL)
            except FileExistsError:
                pass
        return index


class SlowOnce(Numbers):
    SLOW_S = 2.0

    def __getitem__(self, index: int) -> int:
        if index == 2001:
            time.sleep(self.SLOW_S)
        return index


def numbers(loader: Any) -> list[Any]:
    return [batch.tolist() for batch in loader]


def longest_delivery(iterator: Any) -> int:
    event_log = iterator._driver.supervisor.event_log
    runs = [
        len(c.numbers) for entry in event_log for c in entry.commands if isinstance(c, do.Deliver)
    ]
    return max(runs)


def test_an_epoch_of_tiny_batches_is_bundled_complete_and_in_order() -> None:
    loader = DataLoader(Numbers(), num_workers=2, persistent_workers=True)
    for _ in range(3):
        assert numbers(loader) == [[index] for index in range(MANY)]
    assert longest_delivery(loader._iterator) > 1


def test_which_worker_loads_what_stays_as_in_torch() -> None:
    ours = [batch[1].item() for batch in DataLoader(WhoLoads(), num_workers=3)]
    theirs = [batch[1].item() for batch in TorchLoader(WhoLoads(), num_workers=3)]
    assert ours == theirs


def test_streams_come_in_turn_as_in_torch() -> None:
    assert numbers(DataLoader(Stream(), num_workers=2)) == numbers(
        TorchLoader(Stream(), num_workers=2)
    )


def test_with_in_order_false_everything_comes_once() -> None:
    loader = DataLoader(Numbers(), num_workers=2, in_order=False)
    assert sorted(numbers(loader)) == [[index] for index in range(MANY)]


def test_a_sample_that_raises_is_raised_in_its_turn_and_all_others_come() -> None:
    iterator = iter(DataLoader(Fails(), num_workers=2))
    seen: list[Any] = []
    while True:
        try:
            seen.append(next(iterator).item())
        except ValueError as error:
            seen.append(str(error).splitlines()[-1])
        except StopIteration:
            break
    bad = list(range(699, MANY, 700))
    assert [index for index in seen if isinstance(index, int)] == [
        index for index in range(MANY) if index not in bad
    ]
    for index in bad:
        assert f"no sample {index}" in seen[index]


def test_a_worker_killed_in_the_middle_of_a_bundle_costs_nothing(tmp_path: Any) -> None:
    loader = DataLoader(EndsItsWorker(1234, str(tmp_path / "mark")), num_workers=2)
    assert numbers(loader) == [[index] for index in range(MANY)]


def test_of_a_whole_bundle_the_sample_that_kills_is_named() -> None:
    iterator = iter(DataLoader(EndsItsWorker(1234), num_workers=2))
    seen = []
    with pytest.raises(WorkerCrashed, match=r"\b1234\b") as caught:
        for _ in range(MANY):
            seen.append(next(iterator).item())
    assert seen == list(range(1234))
    assert "1233" not in str(caught.value)
    assert numbers(iterator) == [[index] for index in range(1235, MANY)]


def test_what_is_loaded_does_not_wait_for_a_slow_sample_behind_it() -> None:
    late: list[int] = []
    before = time.monotonic()
    for index, _ in enumerate(DataLoader(SlowOnce(), num_workers=1)):
        now = time.monotonic()
        if now - before > SlowOnce.SLOW_S / 2:
            late.append(index)
        before = now
    assert late == [2001]


def test_leaving_early_and_beginning_anew_loses_nothing() -> None:
    loader = DataLoader(Numbers(), num_workers=2, persistent_workers=True)
    for stop in (1, 700, 1500):
        for index, batch in enumerate(loader):
            assert batch.item() == index
            if index == stop:
                break
    assert numbers(loader) == [[index] for index in range(MANY)]


def test_a_prefetch_factor_that_was_asked_for_is_taken_literally() -> None:
    loader = DataLoader(Numbers(), num_workers=2, prefetch_factor=3, persistent_workers=True)
    assert len(numbers(loader)) == MANY
    assert longest_delivery(loader._iterator) == 1


def test_batches_that_change_from_tiny_to_large_and_back() -> None:
    class Changing(Numbers):
        def __getitem__(self, index: int) -> torch.Tensor:
            return torch.full((100_000 if index // 100 % 2 else 3,), index)

    for index, batch in enumerate(DataLoader(Changing(), num_workers=2)):
        assert batch[0, 0] == index and batch[0, -1] == index
