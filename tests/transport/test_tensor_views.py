"""Views that arrive as they were, for runs that are to equal torch's."""

from __future__ import annotations

import random
from typing import Any

import numpy as np
import pytest
import torch

from antifreeze._transport.packing import Unpackable, pack
from antifreeze._transport.tensor_views import MOST_HOLES_BYTES, keeps_holes, overlap
from antifreeze._transport.unpacking import unpack
from antifreeze._transport.worker_slabs import Arena


def sent(batch: Any) -> Any:
    return unpack(pack(batch, as_views=True))


def random_view(chance: random.Random, base: torch.Tensor) -> torch.Tensor:
    """Take a view of a matrix that is anything but the whole."""
    top, left = chance.randrange(3), chance.randrange(3)
    view = base[top :: chance.randint(1, 2), left : chance.randint(5, 9)]
    match chance.randrange(5):
        case 0:
            view = view.t()
        case 1:
            view = view[1]
        case 2:
            view = view.unsqueeze(1).expand(-1, 2, -1)
        case 3 if view.stride(-1) == 1:
            view = view.view(torch.uint8)
    return view


@pytest.mark.parametrize("seed", range(40))
def test_random_views_arrive_alike_and_what_is_written_to_one_is_seen_in_the_others(
    seed: int,
) -> None:
    chance = random.Random(seed)
    bases = [torch.rand(12, 9) for _ in range(2)]
    batch = [random_view(chance, chance.choice(bases)) for _ in range(chance.randint(1, 6))]
    nested = {"views": batch, "first": (batch[0], "text")}
    arrived = sent(nested)["views"]
    for view, other in zip(batch, arrived, strict=True):
        assert (view.stride(), view.dtype) == (other.stride(), other.dtype)
    for views in (batch, arrived):  # the same to both
        for number, view in enumerate(views):
            if 0 not in view.stride():
                view.fill_(number + 1)
    assert [each.tolist() for each in batch] == [each.tolist() for each in arrived]


def test_two_storages_over_the_same_memory_arrive_as_two() -> None:
    memory = np.arange(6.0)
    batch = [torch.from_numpy(memory), torch.from_numpy(memory[1:4])]
    assert not overlap(batch)
    one, other = sent(batch)
    one.zero_()
    assert other.tolist() == [1.0, 2.0, 3.0]


def test_rows_of_a_large_table_travel_without_the_table() -> None:
    table = torch.arange(4_000_000).reshape(1000, 4000)
    packed = pack([table[3], table[900]], as_views=True)
    assert len(packed.inline) + packed.slab_bytes < 100_000


def test_holes_that_are_far_larger_than_what_a_view_shows_stay_behind() -> None:
    memory = torch.empty(MOST_HOLES_BYTES // 4 + 1000)  # a little more than may be holes
    assert keeps_holes(memory[: MOST_HOLES_BYTES // 4 : 1000])
    assert not keeps_holes(memory[::1000])
    assert sent({"view": memory[::100_000]})["view"].shape == memory[::100_000].shape


def test_tensors_of_a_slab_arrive_in_it() -> None:
    arena = Arena()
    try:
        arena.begin(0, False)
        tokens = torch.arange(40_000).reshape(4, 10_000)
        packed = pack((tokens[:, :-1], tokens[:, 1:]), arena, as_views=True)
        assert packed.slab_bytes < 1.1 * tokens.nbytes  # once
    finally:
        arena.abort()


def test_views_of_overlapping_windows_of_an_array_are_each_for_themselves() -> None:
    memory = bytes(range(16))
    windows = [
        torch.frombuffer(bytearray(memory), dtype=torch.uint8),
        torch.frombuffer(bytearray(memory), dtype=torch.int32, offset=2, count=3),
    ]
    one, other = sent({"windows": windows})["windows"]
    assert one.tolist() == list(range(16))
    assert other.tolist() == windows[1].tolist()


def test_columns_of_a_large_table_travel_without_the_table() -> None:
    table = torch.zeros(100_000, 64)
    packed = pack([table[:, 0], table[:, 1]], as_views=True)
    assert len(packed.inline) + packed.slab_bytes < 2_000_000


def test_a_storage_that_was_made_smaller_stays_as_it_is() -> None:
    numbers = torch.arange(4000.0).reshape(2, 2000)
    view = numbers[:, 1::2]
    numbers.untyped_storage().resize_(8000)
    with pytest.raises(Unpackable, match="lies beyond its memory"):
        pack({"views": [view, view[:1]]}, as_views=True)
    assert numbers.untyped_storage().nbytes() == 8000
