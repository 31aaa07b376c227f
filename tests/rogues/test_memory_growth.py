"""Workers whose memory grows: let go between two batches, before the kernel ends one; and named."""

from __future__ import annotations

import functools
import logging
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch.utils.data import Dataset, IterableDataset

from antifreeze import DataLoader
from antifreeze._worker.growth_suspects import grown, suspects

from .groups import group_of, run_in

MB = 1_000_000


class Hoards(Dataset[torch.Tensor]):
    """Keeps every sample it has ever loaded."""

    def __init__(self, count: int, numbers: int = 500_000) -> None:
        self.count, self.numbers = count, numbers
        self.cache: dict[int, torch.Tensor] = {}
        self.names = [f"sample {index}" for index in range(50_000)]

    def __len__(self) -> int:
        return self.count

    def __getitem__(self, index: int) -> torch.Tensor:
        self.cache[index] = torch.full((self.numbers,), float(index))
        time.sleep(0.015)  # so that somebody looks, once a second, in between
        return self.cache[index][:2].clone()


def test_who_holds_more_than_it_may_is_replaced_and_nothing_is_lost(
    caplog: pytest.LogCaptureFixture,
) -> None:
    loader = DataLoader(Hoards(900), batch_size=4, num_workers=2, worker_memory=300 * MB)
    with caplog.at_level(logging.WARNING, "antifreeze"):
        seen = [int(value) for batch in loader for value in batch[:, 0]]
    assert seen == list(range(900))
    (fault, *_) = loader.faults
    assert (fault.kind, fault.verdict) == ("growth", "recycled")
    assert "dataset.cache (about +" in fault.exception
    assert "names" not in fault.exception  # large, but as it was
    assert "It may hold 300.0 MB (worker_memory)." in caplog.text


CONTAINER = """
import time, torch
from antifreeze import DataLoader

class Hoards(torch.utils.data.Dataset):
    def __init__(self):
        self.cache = {}
    def __len__(self):
        return 800
    def __getitem__(self, index):
        self.cache[index] = torch.full((250_000,), float(index))
        time.sleep(0.015)
        return self.cache[index][:2].clone()

if __name__ == "__main__":
    loader = DataLoader(Hoards(), batch_size=4, num_workers=1)
    seen = [int(value) for batch in loader for value in batch[:, 0]]
    assert seen == list(range(800)), seen
    print(sorted({fault.verdict for fault in loader.faults}))
"""


def test_in_a_container_the_kernel_has_nobody_to_end(tmp_path: Path) -> None:
    with group_of(600 * MB) as group:  # 800 MB are hoarded, beside what the program needs
        done = run_in(group, CONTAINER, tmp_path / "hoards.py")
        counted = group / "memory.events"
        if not counted.exists():
            counted = group / "memory.oom_control"
        ended = [line for line in counted.read_text().splitlines() if line.startswith("oom_kill ")]
    assert done.returncode == 0, done.stderr
    assert done.stdout.split("\n")[0] == "['recycled']", done.stdout + done.stderr
    assert "available of the 600.0 MB this container may use" in done.stderr
    assert ended == ["oom_kill 0"]


class HoardsInAStream(IterableDataset[torch.Tensor]):
    def __init__(self, dataset: Hoards) -> None:
        self.dataset = dataset

    def __iter__(self) -> Any:
        return map(self.dataset.__getitem__, range(self.dataset.count))


def test_a_stream_that_nobody_could_go_on_with_is_named_and_left(
    caplog: pytest.LogCaptureFixture,
) -> None:
    stream = HoardsInAStream(Hoards(300))
    loader = DataLoader(stream, batch_size=4, num_workers=1, worker_memory=300 * MB)
    assert sum(len(batch) for batch in loader) == 300
    (fault,) = loader.faults
    assert (fault.kind, fault.verdict) == ("growth", "left")
    assert "dataset.dataset.cache" in fault.exception


class Parts:
    def __init__(self) -> None:
        self.transform = functools.partial(np.add, 1)
        self.steps = [{"seen": [np.zeros(1000) for _ in range(4)]}]

    @functools.cache  # noqa: B019
    def load(self, index: int) -> np.ndarray[Any, Any]:
        return np.zeros(1_000_000)


def test_a_container_deep_inside_is_found_with_its_size() -> None:
    here, there = Parts(), Parts()
    there.steps[0]["seen"] += [np.zeros(10_000) for _ in range(100)]
    (found,) = grown(suspects(("dataset", there)), ("dataset", here))
    assert found.path == "dataset.steps[0]['seen']"
    assert found.items == 100
    assert 4 * MB < found.bytes < 12 * MB  # 8, estimated from the first ones


def test_the_cache_around_a_method_is_found() -> None:
    there = Parts()
    Parts.load.cache_clear()
    for index in range(20):
        there.load(index)
    told = suspects(("dataset", there))
    Parts.load.cache_clear()  # the main process has never called it
    (found,) = grown(told, ("dataset", Parts()))
    assert (found.path, found.items, found.bytes) == ("Parts.load", 20, 0)


class Sharing(Parts):
    kept: list[Any] = []


class Wraps:
    def __init__(self) -> None:
        self.dataset = Sharing()


@pytest.mark.parametrize("kind", [Sharing, Wraps])
def test_what_the_class_of_a_dataset_keeps_is_found(kind: Any) -> None:
    Sharing.kept.extend(np.zeros(100_000) for _ in range(20))
    told = suspects(("dataset", kind()))
    Sharing.kept.clear()  # the main process has kept nothing
    (found, *_) = grown(told, ("dataset", kind()))
    assert (found.path, found.items) == ("Sharing.kept", 20)


@pytest.mark.parametrize("value", ["much", True, 0, -1, float("inf")])
def test_a_size_that_is_none_is_refused_with_its_name(value: Any) -> None:
    with pytest.raises((TypeError, ValueError), match="worker_memory") as caught:
        DataLoader([1, 2], num_workers=1, worker_memory=value)
    assert repr(value) in str(caught.value)
