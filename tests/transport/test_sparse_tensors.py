"""Sparse tensors arrive as they were, and nobody keeps them but the loop."""

from __future__ import annotations

import gc
import weakref
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch

from antifreeze import DataLoader

from .test_packing import travel


def uncoalesced() -> torch.Tensor:
    return torch.sparse_coo_tensor([[0, 0], [1, 1]], [1.0, 2.0], (3, 3), check_invariants=True)


def named() -> Any:
    made: Any = torch.eye(4).to_sparse()
    made.note = "kept"
    return made


KINDS: dict[str, Callable[[], torch.Tensor]] = {
    "coo": lambda: torch.eye(4).to_sparse(),
    "uncoalesced": uncoalesced,
    "csr": lambda: torch.eye(4).to_sparse_csr(),
    "csc": lambda: torch.eye(4).to_sparse_csc(),
    "bsr": lambda: torch.eye(4).to_sparse_bsr((2, 2)),
    "bsc": lambda: torch.eye(4).to_sparse_bsc((2, 2)),
    "with a gradient": lambda: torch.eye(4).to_sparse().requires_grad_(),
    "with an attribute": named,
    "with dense dimensions": lambda: torch.ones(2, 3, 4).to_sparse(1),
    "empty": lambda: torch.zeros(3, 3).to_sparse(),
}
# torch says once that compressed layouts are not finished.
pytestmark = pytest.mark.filterwarnings("ignore:Sparse [A-Z]+ tensor support is in beta")


def facts(tensor: Any) -> tuple[Any, ...]:
    coalesced = tensor.layout is torch.sparse_coo and tensor.is_coalesced()
    own = getattr(tensor, "note", None)
    return type(tensor), tensor.layout, tensor.shape, tensor.requires_grad, coalesced, own


@pytest.mark.parametrize("kind", KINDS)
def test_a_sparse_tensor_arrives_as_it_was(kind: str) -> None:
    tensor = KINDS[kind]()
    arrived = travel(tensor)
    assert facts(arrived) == facts(tensor)
    assert torch.equal(arrived.detach().to_dense(), tensor.detach().to_dense())


@pytest.mark.parametrize("kind", KINDS)
def test_a_sparse_tensor_is_gone_when_the_loop_has_left_it(kind: str) -> None:
    arrived = travel(KINDS[kind]())
    left = weakref.ref(arrived)
    del arrived
    gc.collect()
    assert left() is None


def as_they_are(samples: list[int]) -> list[torch.Tensor]:
    return [torch.eye(4).to_sparse() * sample for sample in samples]


def test_a_file_can_be_loaded_beside_sparse_batches_without_a_word_about_them(
    tmp_path: Path,
) -> None:
    """torch would check them, too, and from 2.15 on it would warn that it does."""
    torch.save(torch.ones(2), tmp_path / "file.pt")
    loader = DataLoader(range(4), batch_size=2, num_workers=1, collate_fn=as_they_are)
    for place, batch in enumerate(loader):
        assert torch.equal(batch[1].to_dense(), torch.eye(4) * (2 * place + 1))
        assert torch.equal(torch.load(tmp_path / "file.pt"), torch.ones(2))
