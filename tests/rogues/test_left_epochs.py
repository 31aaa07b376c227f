"""Workers of streams that are lost between two epochs: the next one begins as it would have, or
with an error, or with a line that says what is missing."""

from __future__ import annotations

import os
import random
import signal
import time
from collections.abc import Iterator
from typing import Any

import pytest
import torch
from torch.utils.data import DataLoader as TorchLoader
from torch.utils.data import IterableDataset

from antifreeze import DataLoader
from antifreeze._core.limits import LIMITS
from antifreeze._engine.stream_positions import StreamPositions
from antifreeze._loading.observations import StreamPrint, StreamState
from antifreeze.errors import WorkerFailed

ROWS = 20


class Once(IterableDataset[int]):
    """Begins where its state says, once; after that at the beginning."""

    def __init__(self) -> None:
        self.start = self.at = 0

    def __iter__(self) -> Iterator[int]:
        start, self.start = self.start, 0
        for at in range(start, ROWS):
            self.at = at + 1
            yield at

    def state_dict(self) -> dict[str, Any]:
        return {"at": self.at}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self.start = state["at"]


class Sticky(Once):
    """Begins where its state says, always."""

    def __iter__(self) -> Iterator[int]:
        for at in range(self.start, ROWS):
            self.at = at + 1
            time.sleep(0.005)  # so that a state after each batch costs little beside it
            yield at


class GoesOn(Once):
    """Goes on where it was left."""

    def __iter__(self) -> Iterator[int]:
        while self.at < ROWS:
            self.at += 1
            yield self.at - 1
        self.at = 0

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self.at = state["at"]


class OfEpoch(Once):
    """Has a state that tells its epoch, and nothing else."""

    def __init__(self) -> None:
        super().__init__()
        self.epoch = 0

    def __iter__(self) -> Iterator[int]:
        order = list(range(ROWS))
        random.Random(self.epoch).shuffle(order)
        yield from order
        self.epoch += 1

    def state_dict(self) -> dict[str, Any]:
        return {"epoch": self.epoch}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self.epoch = state["epoch"]


class OfShard(OfEpoch):
    """Has a state that tells its shard; where it is in that, nobody knows."""

    def __iter__(self) -> Iterator[int]:
        for at in range(self.epoch * 5, ROWS):
            self.epoch = at // 5
            yield at
        self.epoch = 0


class Counts(IterableDataset[int]):
    """Has no state, and something that changes."""

    def __init__(self) -> None:
        self.epoch = 0

    def __iter__(self) -> Iterator[int]:
        yield from range(100 * self.epoch, 100 * self.epoch + ROWS)
        self.epoch += 1


class Drawn(Once):
    """Draws its rows afresh in every epoch, and in state_dict()."""

    def __iter__(self) -> Iterator[int]:
        for number in super().__iter__():
            yield 1000 * number + int(torch.randint(1000, ()))

    def state_dict(self) -> dict[str, Any]:
        torch.rand(3)
        random.random()
        return super().state_dict()


def epochs(loader_class: Any, dataset: Any, *, leave: int | None, kill: bool) -> list[list[int]]:
    torch.manual_seed(3)
    loader = loader_class(dataset, 3, num_workers=1, persistent_workers=True)
    seen: list[list[int]] = []
    for epoch in range(3):
        iterator = iter(loader)
        rows: list[int] = []
        for number, batch in enumerate(iterator):
            rows += batch.tolist()
            if epoch == 0 and number == leave:
                break
        seen.append(rows)
        if kill and epoch == 0:
            time.sleep(0.1)
            os.kill(iterator._workers[0].pid, signal.SIGKILL)
    return seen


@pytest.mark.parametrize("leave", [None, 0, 2])
@pytest.mark.parametrize("kind", [Once, GoesOn, Drawn])
def test_the_next_epoch_is_what_it_would_have_been(kind: Any, leave: int | None) -> None:
    wanted = epochs(TorchLoader, kind(), leave=leave, kill=False)
    assert epochs(DataLoader, kind(), leave=leave, kill=False) == wanted
    assert epochs(DataLoader, kind(), leave=leave, kill=True) == wanted


@pytest.mark.parametrize("leave", [None, 2])
def test_a_state_that_tells_only_the_epoch_is_enough_for_the_next_one(leave: int | None) -> None:
    wanted = epochs(TorchLoader, OfEpoch(), leave=leave, kill=False)
    assert epochs(DataLoader, OfEpoch(), leave=leave, kill=True) == wanted


def test_a_state_that_stays_loaded_is_an_error_and_no_short_epoch() -> None:
    wanted = epochs(TorchLoader, Sticky(), leave=None, kill=False)
    errors = []
    for _ in range(8):
        try:  # if no state was told in time, none is loaded
            assert epochs(DataLoader, Sticky(), leave=None, kill=True) == wanted
        except WorkerFailed as error:
            errors.append(str(error))
    assert errors
    assert all("keeps the state that was loaded" in text for text in errors)


def test_a_state_that_nobody_can_go_by_is_an_error() -> None:
    with pytest.raises(WorkerFailed, match="nobody knows what its dataset would have begun"):
        epochs(DataLoader, OfShard(), leave=2, kill=True)


def test_what_a_stream_without_a_state_had_changed_is_named(
    caplog: pytest.LogCaptureFixture,
) -> None:
    epochs(DataLoader, Counts(), leave=None, kill=True)
    told = [record.getMessage() for record in caplog.records if "two epochs" in record.getMessage()]
    assert len(told) == 1
    assert "dataset.epoch (0, now 1) had changed" in told[0]


class Shuffled(Once):
    """Begins each epoch with any of its rows."""

    def __init__(self) -> None:
        super().__init__()
        self.epoch, self.rows = 0, 6

    def __iter__(self) -> Iterator[int]:
        start, self.start = self.start, 0
        order = random.Random(self.epoch).sample(range(self.rows), self.rows)
        for at in range(start, self.rows):
            self.at = at + 1
            yield order[at]
        self.epoch, self.at = self.epoch + 1, 0

    def state_dict(self) -> dict[str, Any]:
        return {"at": self.at, "epoch": self.epoch}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self.start, self.epoch = state["at"], state["epoch"]


def test_an_epoch_may_begin_with_the_batch_at_which_another_was_taken_up_again() -> None:
    seen = []
    for loader_class, kill in ((TorchLoader, False), (DataLoader, True)):
        dataset: Any = Shuffled()
        loader = loader_class(dataset, None, num_workers=1, persistent_workers=True)
        rows: list[Any] = []
        for epoch in range(40):
            iterator = iter(loader)
            for number, row in enumerate(iterator):
                rows.append(int(row))
                if kill and epoch == 0 and number == 2:
                    os.kill(iterator._workers[0].pid, signal.SIGKILL)
        seen.append(rows)
    assert seen[0] == seen[1]


def test_what_is_kept_of_streams_is_bounded_and_old_news_count_for_nothing() -> None:
    places = StreamPositions()
    for epoch in range(3 * LIMITS.streams.epochs):
        for batch in range(1, 2 * LIMITS.streams.prints):
            places.note(0, StreamPrint(epoch, batch, 1000 * epoch + batch))
    kept = places._epochs[0]
    assert [each.number for each in kept] == list(
        range(2 * LIMITS.streams.epochs, 3 * LIMITS.streams.epochs)
    )
    assert all(len(each.prints) == LIMITS.streams.prints and 1 in each.prints for each in kept)
    before = {each.number: dict(each.prints) for each in kept}
    assert not places.note(0, StreamState(0, 3, b"state"))  # of long ago
    places.note(0, StreamPrint(1, 1, 5))
    assert {each.number: dict(each.prints) for each in kept} == before


class Slow(Once):
    """Takes a state that costs more than a batch: it is told rarely."""

    def state_dict(self) -> dict[str, Any]:
        time.sleep(0.01)
        return super().state_dict()


@pytest.mark.parametrize("after", range(0, 7, 2))
def test_a_loop_that_is_left_right_after_a_worker_was_lost(after: int) -> None:
    for kind in (Once, GoesOn, Slow):
        seen = []
        for loader_class, kill in ((TorchLoader, False), (DataLoader, True)):
            dataset: Any = kind()
            loader = loader_class(dataset, 3, num_workers=1, persistent_workers=True)
            rows: list[Any] = []
            for epoch in range(2):
                iterator = iter(loader)
                for number, batch in enumerate(iterator):
                    rows += batch.tolist()
                    if epoch == 0 and number == after:
                        if kill:
                            os.kill(iterator._workers[0].pid, signal.SIGKILL)
                        break
            seen.append(rows)
        assert seen[0] == seen[1], kind
