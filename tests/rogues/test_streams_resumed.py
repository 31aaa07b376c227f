"""Workers of iterable datasets that die: their streams are taken up where they were, or it is said
what is missing."""

from __future__ import annotations

import os
import random
import signal
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch.utils.data import IterableDataset, get_worker_info

from antifreeze import DataLoader, policies
from antifreeze.errors import WorkerCrashed

ROWS = 40


class Rows(IterableDataset[torch.Tensor]):
    """Gives each worker's rows, with a random number each; one worker dies at a row, once."""

    def __init__(self, mark: Path | None = None, *, always: bool = False) -> None:
        self.mark, self.always = mark, always
        self.at = 0

    def rows(self) -> Iterator[torch.Tensor]:
        info = get_worker_info()
        worker = 0 if info is None else info.id
        while self.at < ROWS:
            row = self.at
            mark = self.mark if row == 17 and worker == 1 else None
            if mark is not None and (self.always or not mark.exists()):
                mark.touch()
                os.kill(os.getpid(), signal.SIGKILL)
            self.at += 1
            yield torch.tensor([worker, row, int(1e6 * np.random.rand())])
        self.at = 0

    def __iter__(self) -> Iterator[torch.Tensor]:
        return self.rows()


class StatefulRows(Rows):
    def state_dict(self) -> dict[str, int]:
        return {"at": self.at}

    def load_state_dict(self, state: dict[str, int]) -> None:
        self.at = state["at"]


class SlowState(StatefulRows):
    """Takes longer to say where it is than to give a row, so it is not asked every time."""

    def state_dict(self) -> dict[str, int]:
        time.sleep(0.05)
        return super().state_dict()


def _batches(dataset: Any, **arguments: Any) -> list[list[Any]]:
    for seed in (torch.manual_seed, random.seed, np.random.seed):
        seed(1)
    loader = DataLoader(dataset, batch_size=4, num_workers=2, **arguments)
    return [batch.tolist() for batch in loader]


@pytest.mark.parametrize("kind", [StatefulRows, SlowState])
@pytest.mark.parametrize("persistent", [False, True])
def test_a_stream_with_a_state_goes_on_where_it_was_bit_for_bit(
    kind: type[Rows], persistent: bool, tmp_path: Path
) -> None:
    undisturbed = _batches(kind())
    mark = tmp_path / "died"
    assert _batches(kind(mark), persistent_workers=persistent) == undisturbed
    assert mark.exists()


def test_a_stream_without_a_state_is_an_error_that_says_what_was_delivered(tmp_path: Path) -> None:
    with pytest.raises(WorkerCrashed, match=r"gave up this worker's stream after \d+ batches"):
        _batches(Rows(tmp_path / "died"))


def test_by_policy_it_is_begun_anew_and_what_was_given_is_passed_over(tmp_path: Path) -> None:
    mark = tmp_path / "died"
    seen = [row for batch in _batches(Rows(mark), on_error="skip") for row in batch]
    assert mark.exists()
    assert [row for worker, row, _ in seen if worker == 1] == list(range(ROWS))


@pytest.mark.parametrize("kind", [Rows, StatefulRows])
def test_a_row_that_always_ends_its_worker_ends_its_stream_with_an_error(
    kind: type[Rows], tmp_path: Path
) -> None:
    with pytest.raises(WorkerCrashed, match="from its stream"):
        _batches(kind(tmp_path / "died", always=True), on_error="skip")


class Raises(IterableDataset[int]):
    """An iterator that goes on after an error, as a generator would not."""

    def __iter__(self) -> Iterator[int]:
        self.at = -1
        return self

    def __next__(self) -> int:
        self.at += 1
        if self.at >= 20:
            raise StopIteration
        if self.at % 7 == 3:
            raise OSError(f"row {self.at} cannot be read")
        return self.at


def test_samples_of_a_stream_that_raise_are_left_out_and_counted() -> None:
    policy = policies.skipping(only=(OSError,), budget=policies.Budget(share=0.5))
    loader = DataLoader(Raises(), batch_size=4, num_workers=1, on_error=policy)
    seen = [int(value) for batch in loader for value in batch]
    assert seen == [row for row in range(20) if row % 7 != 3]
    faults = [fault for fault in loader.faults if fault.verdict == "skipped"]
    assert [fault.exception for fault in faults] == [
        f"OSError: row {row} cannot be read" for row in (3, 10, 17)
    ]


def test_replacing_a_sample_of_a_stream_is_refused() -> None:
    with pytest.raises(ValueError, match='"skip" goes on without'):
        DataLoader(Raises(), batch_size=4, num_workers=1, on_error="replace")


class Mute(Rows):
    """Has a state that does not say where it is."""

    def __init__(self, mark: Path, says: str) -> None:
        super().__init__(mark)
        self.says = says

    def state_dict(self) -> Any:
        if self.says == "raises":
            raise RuntimeError("not now")
        return {"weights": [1, 2]} if self.says == "the same" else (row for row in range(3))

    def load_state_dict(self, state: Any) -> None:
        raise AssertionError("nobody can go on from that")


@pytest.mark.parametrize("says", ["the same", "raises", "what cannot be pickled"])
def test_a_state_that_says_nothing_is_none(says: str, tmp_path: Path) -> None:
    with pytest.raises(WorkerCrashed, match="gave up this worker's stream"):
        _batches(Mute(tmp_path / "died", says))
    whole = _batches(Mute(tmp_path / "died", says))  # that it was asked for is no harm
    assert sum(len(batch) for batch in whole) == 2 * ROWS


class RaisesThenDies(IterableDataset[int]):
    """Raises at row 9, goes on after it, and ends its worker at row 25, once."""

    def __init__(self, mark: Path) -> None:
        self.mark, self.at = mark, -1

    def __iter__(self) -> Iterator[int]:
        return self

    def __next__(self) -> int:
        self.at += 1
        if self.at >= ROWS:
            raise StopIteration
        if self.at == 9:
            raise OSError("row 9")
        if self.at == 25 and not self.mark.exists():
            self.mark.touch()
            os.kill(os.getpid(), signal.SIGKILL)
        return self.at

    def state_dict(self) -> dict[str, int]:
        return {"at": self.at}

    def load_state_dict(self, state: dict[str, int]) -> None:
        self.at = state["at"]


def test_a_batch_that_was_raised_is_behind_as_well(tmp_path: Path) -> None:
    iterator = iter(DataLoader(RaisesThenDies(tmp_path / "died"), batch_size=4, num_workers=1))
    seen = []
    for _ in range(ROWS):
        try:
            seen += [int(row) for row in next(iterator)]
        except OSError:
            continue
        except StopIteration:
            break
    assert (tmp_path / "died").exists()
    assert seen == [*range(8), *range(10, ROWS)]  # 8 was in the batch that raised


class ManyBad(IterableDataset[int]):
    """Every second row raises, and row 45 ends its worker, once."""

    def __init__(self, mark: Path) -> None:
        self.mark, self.at = mark, -1

    def __iter__(self) -> Iterator[int]:
        self.at = -1
        return self

    def __next__(self) -> int:
        self.at += 1
        if self.at >= 60:
            raise StopIteration
        if self.at % 2:
            if self.at == 45 and not self.mark.exists():
                self.mark.touch()
                os.kill(os.getpid(), signal.SIGKILL)
            raise ValueError(f"row {self.at}")
        return self.at


def test_what_is_passed_over_again_is_neither_given_nor_told_again(tmp_path: Path) -> None:
    policy = policies.skipping(budget=policies.Budget(share=1.0))
    dataset = ManyBad(tmp_path / "died")
    loader = DataLoader(dataset, batch_size=4, num_workers=1, on_error=policy)
    seen = [int(row) for batch in loader for row in batch]
    assert (tmp_path / "died").exists()
    assert seen == list(range(0, 60, 2))
    left_out = [fault.index for fault in loader.faults if fault.verdict == "skipped"]
    assert left_out == list(range(1, 60, 2))
