"""A batch that cannot be collated: which sample is to blame is said, with and without workers."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch

from antifreeze import DataLoader

ODD = 5
T = torch.zeros


class Mixed:
    def __init__(self, usual: Any, odd: Any) -> None:
        self.usual, self.odd = usual, odd

    def __len__(self) -> int:
        return 12

    def __getitem__(self, index: int) -> Any:
        return self.odd if index == ODD else self.usual


@pytest.mark.parametrize("workers", [0, 2])
@pytest.mark.parametrize(
    ("usual", "odd", "said"),
    [
        (T(3, 8), T(3, 7), "sample 5 has shape [3, 7], the others have shape [3, 8]"),
        (T(3, 8), T(3, 9), "sample 5 has shape [3, 9], the others have shape [3, 8]"),
        (np.zeros(8), np.zeros(7), "sample 5 has shape [7], the others have shape [8]"),
        (
            {"image": T(8), "label": 1},
            {"image": T(7), "label": 1},
            "sample 5 has shape [7] at ['image'], the others have shape [8]",
        ),
        (
            (T(1), {"boxes": [T(4)]}),
            (T(1), {"boxes": [T(5)]}),
            "sample 5 has shape [5] at [1]['boxes'][0], the others have shape [4]",
        ),
        (T(8), None, "sample 5 is None, the others have shape [8]"),
        ({"a": 1}, {"a": None}, "sample 5 is None at ['a'], the others are a number"),
        ([1, 2, 3], [1, 2], "sample 5 has 2 items, the others have 3 items"),
        (
            {"a": 1, "b": 2},
            {"a": 1},
            "sample 5 has the keys 'a', the others have the keys 'a', 'b'",
        ),
        (T(8), "text", "sample 5 is a str, the others have shape [8]"),
    ],
    ids=lambda value: str(value) if isinstance(value, str) else "",
)
def test_the_odd_one_is_named(usual: Any, odd: Any, said: str, workers: int) -> None:
    loader: DataLoader[Any] = DataLoader(Mixed(usual, odd), batch_size=4, num_workers=workers)  # type: ignore[arg-type]
    with pytest.raises(Exception) as caught:
        list(loader)
    notes: list[str] = caught.value.__notes__
    assert f"antifreeze: {said}" in notes
    assert any("collating samples 4, 5, 6, 7 (batch 1)" in note for note in notes)


def test_in_a_batch_of_two_one_is_compared_with_the_other() -> None:
    loader: DataLoader[Any] = DataLoader(Mixed(T(8), T(7)), batch_size=2)  # type: ignore[arg-type]
    with pytest.raises(RuntimeError) as caught:
        list(loader)
    assert "antifreeze: sample 5 has shape [7], sample 4 has shape [8]" in caught.value.__notes__


def test_where_all_are_alike_nothing_is_said_about_any() -> None:
    def refuse(samples: list[Any]) -> Any:
        raise ValueError("no")

    with pytest.raises(ValueError, match="no") as caught:
        list(DataLoader(range(4), batch_size=4, collate_fn=refuse))  # type: ignore[arg-type]
    assert len(caught.value.__notes__) == 1


def test_a_collate_of_the_users_own_that_handles_none_goes_on_working() -> None:
    loader: DataLoader[Any] = DataLoader(
        Mixed(1, None),  # type: ignore[arg-type]
        batch_size=4,
        num_workers=2,
        collate_fn=lambda samples: [each for each in samples if each is not None],
    )
    assert list(loader) == [[1] * 4, [1] * 3, [1] * 4]
