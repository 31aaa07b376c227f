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
    loader: DataLoader[Any] = DataLoader(Mixed(usual, odd), batch_size=4, num_workers=workers)
    with pytest.raises(Exception) as caught:
        list(loader)
    notes: list[str] = caught.value.__notes__
    assert f"antifreeze: {said}" in notes
    assert any("collating samples 4, 5, 6, 7 (batch 1)" in note for note in notes)


def test_in_a_batch_of_two_one_is_compared_with_the_other() -> None:
    loader: DataLoader[Any] = DataLoader(Mixed(T(8), T(7)), batch_size=2)
    with pytest.raises(RuntimeError) as caught:
        list(loader)
    assert "antifreeze: sample 5 has shape [7], sample 4 has shape [8]" in caught.value.__notes__


def test_where_all_are_alike_nothing_is_said_about_any() -> None:
    def refuse(samples: list[Any]) -> Any:
        raise ValueError("no")

    with pytest.raises(ValueError, match="no") as caught:
        list(DataLoader(range(4), batch_size=4, collate_fn=refuse))
    assert len(caught.value.__notes__) == 1


def test_a_collate_of_the_users_own_that_handles_none_goes_on_working() -> None:
    loader: DataLoader[Any] = DataLoader(
        Mixed(1, None),
        batch_size=4,
        num_workers=2,
        collate_fn=lambda samples: [each for each in samples if each is not None],
    )
    assert list(loader) == [[1] * 4, [1] * 3, [1] * 4]


class Rows:
    def __init__(self, rows: list[Any]) -> None:
        self.rows = rows

    def __len__(self) -> int:
        return len(self.rows)

    def __getitem__(self, index: int) -> Any:
        return self.rows[index]


def notes_of(rows: list[Any], collate_fn: Any = None) -> list[str]:
    with pytest.raises(Exception) as caught:
        list(DataLoader(Rows(rows), batch_size=len(rows), collate_fn=collate_fn))
    return [note for note in caught.value.__notes__ if "raised while" not in note]


def longest(samples: list[Any]) -> Any:
    return [max(boxes) for _, boxes in samples]


def boxes(*lengths: int) -> list[Any]:
    return [(T(4), [1.0] * length) for length in lengths]


def test_where_lengths_vary_anyway_only_the_empty_one_is_named() -> None:
    said = "antifreeze: sample 7 has 0 items at [1], the others are not empty"
    assert notes_of(boxes(2, 3, 1, 2, 3, 1, 2, 0), longest) == [said]


def test_where_lengths_vary_and_many_are_empty_nobody_is_accused() -> None:
    assert notes_of(boxes(2, 3, 1, 0, 3, 0, 0, 0), longest) == []


def test_a_collate_of_the_users_own_has_few_odd_samples_named() -> None:
    said = "antifreeze: sample 2 has 0 items at [1], sample 5 has 3 items at [1]"
    assert notes_of(boxes(2, 2, 0, 2, 2, 3, 2, 2), longest) == [
        said.replace(" at [1],", ",") + ", the others have 2 items"
    ]


class Picture:
    pass


@pytest.mark.parametrize("rows", [1, 3])
def test_what_the_default_collate_does_not_take_is_named_with_its_place(rows: int) -> None:
    too = " (the others, too)" if rows > 1 else ""
    (said,) = notes_of([{"y": 1, "pic": [Picture()]}] * rows)
    kind = f"{Picture.__module__}.Picture"
    place = "at ['pic'][0], which the default collate does not take"
    assert said == f"antifreeze: sample 0 is a {kind} {place}{too}"


def test_arrays_of_words_are_not_taken_by_the_default_collate() -> None:
    (said,) = notes_of([{"words": np.array(["a", "b"])}])
    assert "sample 0 has shape [2] at ['words'], which the default collate does not take" in said
