"""Tensors whose dimensions have names (until torch 2.12) keep them, or are refused as by torch."""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from typing import Any

import pytest
import torch
from torch.utils.data import DataLoader as TorchLoader

from antifreeze import DataLoader

pytestmark = [
    pytest.mark.skipif(
        not hasattr(torch.Tensor, "has_names"), reason="torch has no named tensors any more"
    ),
]
new: Any = torch.zeros  # whose stub may not know `names`


@pytest.fixture(autouse=True)
def _experimental() -> Iterator[None]:
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="Named tensors")
        yield


class Marked(torch.Tensor):
    pass


def small() -> Any:
    return new(2, 3, names=("N", "C")) + 1


def large() -> Any:
    return new(300, 400, names=("N", "C")) + 2


def turned() -> Any:
    return large().align_to("C", "N")


def in_part() -> Any:
    return new(2, 3, names=("N", None))


def sliced() -> Any:
    return large()[::3, ::2]


def leaf() -> Any:
    return small().requires_grad_()


def marked() -> Any:
    tensor = small()
    tensor.tag = "mine"
    return tensor


def of_a_subclass() -> Any:
    return small().as_subclass(Marked)


MAKERS = (small, large, turned, in_part, sliced, leaf, marked, of_a_subclass)


class Made:
    def __init__(self, make: Any) -> None:
        self.make = make

    def __len__(self) -> int:
        return 3

    def __getitem__(self, index: int) -> Any:
        return self.make()


class Held:
    """Has named tensors of its own, which go with it to a clean process."""

    def __init__(self) -> None:
        self.tensor, self.turned = large(), turned()
        self.parameter = torch.nn.Parameter(small())

    def __len__(self) -> int:
        return 3

    def __getitem__(self, index: int) -> Any:
        return self.tensor.names, self.turned.names, self.parameter.names, self.tensor + index


def only(samples: list[Any]) -> Any:
    return {"one": samples[0], "plain": samples[0].rename(None)}


@pytest.mark.parametrize("workers", [0, 2])
@pytest.mark.parametrize("make", MAKERS, ids=lambda make: make.__name__)
def test_names_arrive_with_the_tensor(make: Any, workers: int) -> None:
    expected = make()
    for batch in DataLoader(Made(make), batch_size=None, num_workers=workers):
        assert type(batch) is type(expected) and batch.names == expected.names
        assert batch.shape == expected.shape and batch.requires_grad == expected.requires_grad
        assert torch.equal(batch.rename(None), expected.rename(None))
        assert getattr(batch, "tag", None) == getattr(expected, "tag", None)


def test_names_arrive_from_a_collate_function_and_others_get_none() -> None:
    for batch in DataLoader(Made(large), batch_size=2, num_workers=1, collate_fn=only):
        assert batch["one"].names == ("N", "C") and not batch["plain"].has_names()


def test_the_default_collate_refuses_them_in_torchs_words() -> None:
    """With workers, too; torch's own say something else there, about a device."""
    words = "stack is not yet supported with named tensors"
    for kind, workers in ((TorchLoader, 0), (DataLoader, 0), (DataLoader, 1)):
        with pytest.raises(RuntimeError, match=words):
            list(kind(Made(large), batch_size=2, num_workers=workers))


@pytest.mark.parametrize("method", ["fork", "spawn", "forkserver"])
def test_names_of_a_datasets_own_tensors_arrive_in_its_workers(method: str) -> None:
    loader = DataLoader(Held(), batch_size=None, num_workers=1, multiprocessing_context=method)
    for index, (names, turned_names, of_parameter, tensor) in enumerate(loader):
        assert (tuple(names), tuple(turned_names)) == (("N", "C"), ("C", "N"))
        assert tuple(of_parameter) == ("N", "C") and tensor.names == ("N", "C")
        assert torch.equal(tensor.rename(None), torch.full((300, 400), 2.0 + index))
