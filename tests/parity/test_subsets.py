"""Samples behind torch's Subset: the same as torch loads, each with a name of its own."""

from __future__ import annotations

import os
import time
from typing import Any

import numpy as np
import pytest
import torch
from torch.utils.data import DataLoader as TorchLoader
from torch.utils.data import Subset, random_split

from antifreeze import DataLoader
from antifreeze.errors import WorkerCrashed, WorkerHung
from antifreeze.policies import replacing

BAD = 22


class Rows:
    def __init__(self, bad: int = -1) -> None:
        self.bad = bad

    def __len__(self) -> int:
        return 40

    def __getitem__(self, index: int) -> Any:
        if index == self.bad:
            raise ValueError("bad image")
        return index


class Draws(Rows):
    def __getitem__(self, index: int) -> Any:
        return float(torch.rand(())) + float(np.random.random())


class AtOnce(Rows):
    def __getitems__(self, indices: list[int]) -> list[Any]:
        if self.bad in indices:
            raise ValueError("bad image")
        return [("at once", index) for index in indices]


class OfItsOwn(Subset[Any]):
    def __getitem__(self, index: Any) -> Any:
        return ("of its own", self.dataset[self.indices[index]])

    def __getitems__(self, indices: list[int]) -> list[Any]:
        return [self[index] for index in indices]


def some(dataset: Any, kind: str = "list") -> Any:
    kinds: dict[str, Any] = {
        "list": list(range(20, 28)),
        "range": range(20, 28),
        "array": np.arange(20, 28),
        "tensor": torch.arange(20, 28),
    }
    return Subset(dataset, kinds[kind])


def batches(loader: Any) -> list[Any]:
    return [[repr(each) for each in batch] for batch in loader]


def nested(dataset: Any) -> Any:
    return Subset(some(dataset), [7, 2, 0, 5])


@pytest.mark.parametrize("workers", [0, 2])
@pytest.mark.parametrize(
    "dataset",
    [
        *(some(Rows(), kind) for kind in ("list", "range", "array", "tensor")),
        nested(Rows()),
        random_split(Rows(), [30, 10])[1],
        some(AtOnce()),
        nested(AtOnce()),
        OfItsOwn(Rows(), range(20, 28)),
        Subset(OfItsOwn(Rows(), range(40)), range(20, 28)),
        some({index: index for index in range(40)}),
    ],
    ids=lambda dataset: type(dataset).__name__,
)
def test_the_batches_are_those_of_torch(dataset: Any, workers: int) -> None:
    told: dict[str, Any] = {"batch_size": 3, "collate_fn": list}
    expected = batches(TorchLoader(dataset, **told))
    assert batches(DataLoader(dataset, num_workers=workers, **told)) == expected


def notes_of(dataset: Any, workers: int = 0, **more: Any) -> str:
    loader = DataLoader(dataset, batch_size=4, num_workers=workers, **more)
    with pytest.raises(ValueError, match="bad image") as caught:
        list(loader)
    (fault,) = [fault for fault in loader.faults if fault.verdict == "raised"]
    return f"{fault.index} {caught.value.__notes__}"


@pytest.mark.parametrize("workers", [0, 2])
@pytest.mark.parametrize("kind", ["list", "range", "array", "tensor"])
def test_a_sample_that_raises_is_named_by_both_its_indices(kind: str, workers: int) -> None:
    said = notes_of(some(Rows(BAD), kind), workers)
    assert said.startswith("2 ")
    assert "loading sample 2 (22 in the dataset of the Subset) (batch 0)" in said


@pytest.mark.parametrize("workers", [0, 2])
def test_a_subset_of_a_subset_names_the_sample_of_the_dataset_at_the_bottom(workers: int) -> None:
    said = notes_of(nested(Rows(BAD)), workers)
    assert "loading sample 1 (22 in the dataset of the Subset)" in said


def test_a_dataset_that_is_asked_for_many_at_once_still_is() -> None:
    assert "calling __getitems__ for samples 0, 1, 2, 3 (batch 0)" in notes_of(some(AtOnce(BAD)))


def test_a_policy_names_both_indices_too() -> None:
    policy = replacing(only=(KeyError,))
    said = notes_of(some(Rows(BAD)), on_error=policy)
    assert "loading sample 2 (22 in the dataset of the Subset)" in said


def test_an_index_that_the_subset_does_not_have_is_the_errors_own() -> None:
    loader = DataLoader(some(Rows()), sampler=[0, 99], batch_size=2)
    with pytest.raises(IndexError) as caught:
        list(loader)
    assert "samples 0, 99" in caught.value.__notes__[0]


def test_a_batch_that_does_not_collate_names_both_indices() -> None:
    rows = [torch.zeros(3), torch.zeros(3), torch.zeros(2), torch.zeros(3)]
    with pytest.raises(RuntimeError) as caught:
        list(DataLoader(Subset(rows, [3, 2, 1, 0]), batch_size=4))
    said = "sample 1 (2 in the dataset of the Subset) has shape [2], the others have shape [3]"
    assert f"antifreeze: {said}" in caught.value.__notes__


def drawn(dataset: Any, workers: int) -> list[Any]:
    torch.manual_seed(3)
    np.random.seed(3)
    return batches(DataLoader(dataset, batch_size=4, num_workers=workers, collate_fn=list))


def test_what_samples_draw_is_the_same_as_without_a_subset() -> None:
    whole: Any = Subset(Draws(), range(40))
    assert drawn(Draws(), 2) == drawn(whole, 0) == drawn(whole, 1) == drawn(whole, 2)


class Misbehaves(Rows):
    def __init__(self, way: str) -> None:
        super().__init__()
        self.way = way

    def __getitem__(self, index: int) -> Any:
        if index == BAD and self.way == "hang":
            time.sleep(60)
        if index == BAD:
            os._exit(3)
        return index


SAID = "Sample 2 is 22 in the dataset of the Subset."


def test_a_sample_that_ends_its_worker_is_named_by_both_its_indices(
    caplog: pytest.LogCaptureFixture,
) -> None:
    loader = DataLoader(some(Misbehaves("exit")), batch_size=4, num_workers=1)
    with pytest.raises(WorkerCrashed, match=r"was loading sample 2 \(batch 0") as caught:
        list(loader)
    assert f"antifreeze: {SAID}" in caught.value.__notes__
    assert all(SAID in record.getMessage() for record in caplog.records)
    assert SAID in loader.faults[0].exception


@pytest.mark.parametrize("limit", ["timeout", "sample_timeout"])
def test_a_sample_that_hangs_is_named_by_both_its_indices(limit: str) -> None:
    limits: dict[str, Any] = {limit: 0.5}
    loader = DataLoader(some(Misbehaves("hang")), batch_size=4, num_workers=1, **limits)
    with pytest.raises(WorkerHung, match=r"sample 2 \(batch 0\)") as caught:
        list(loader)
    assert f"antifreeze: {SAID}" in caught.value.__notes__


@pytest.mark.parametrize("workers", [0, 1])
def test_without_batches_both_indices_are_named(workers: int) -> None:
    with pytest.raises(ValueError, match="bad image") as caught:
        list(DataLoader(some(Rows(BAD)), None, num_workers=workers))
    assert "loading sample 2 (22 in the dataset of the Subset)" in caught.value.__notes__[0]
