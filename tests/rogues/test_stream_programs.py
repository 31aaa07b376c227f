"""Random programs over streams whose workers are killed: they receive what torch's loader gives an
undisturbed program, draw for draw."""

from __future__ import annotations

import contextlib
import itertools
import os
import random
import signal
import time
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pytest
import torch
from torch.utils.data import DataLoader as TorchLoader
from torch.utils.data import IterableDataset, get_worker_info

from antifreeze import DataLoader
from antifreeze._loading.dataset_mutations import print_of_batch

from ..patience import PATIENCE_S
from ..repetition import some_of


def _drawn(kind: str, own: Any) -> int:
    match kind:
        case "random":
            return random.randrange(10**6)
        case "gauss":
            return int(10**6 * random.gauss(0, 1))
        case "numpy":
            return int(np.random.randint(10**6))
        case "torch":
            return int(torch.randint(10**6, ()))
        case "own":
            return int(own.integers(10**6))
    return 0


class Base(IterableDataset[Any]):
    """A worker's own rows, each with a number that was drawn for it."""

    def __init__(self, rows: int, draws: str) -> None:
        self.rows, self.draws = rows, draws
        self.rng = np.random.default_rng(5)
        self.at = self.epochs = 0

    def row(self, at: int) -> torch.Tensor:
        info = get_worker_info()
        assert info is not None
        return torch.tensor([info.id, self.epochs, at, _drawn(self.draws, self.rng)])


class Stateless(Base):
    def __iter__(self) -> Iterator[torch.Tensor]:
        return (self.row(at) for at in range(self.rows))


class StatefulGenerator(Base):
    """Rewinds at its end, as torchdata's examples do."""

    def __iter__(self) -> Iterator[torch.Tensor]:
        while self.at < self.rows:
            at = self.at
            self.at += 1
            yield self.row(at)
        self.at = 0
        self.epochs += 1

    def state_dict(self) -> dict[str, Any]:
        return {"at": self.at, "epochs": self.epochs}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self.at, self.epochs = state["at"], state["epochs"]


class StatefulSelf(StatefulGenerator):
    """Is its own iterator."""

    def __iter__(self) -> Iterator[torch.Tensor]:
        return self

    def __next__(self) -> torch.Tensor:
        if self.at >= self.rows:
            self.at = 0
            self.epochs += 1
            raise StopIteration
        self.at += 1
        return self.row(self.at - 1)


class SlowState(StatefulGenerator):
    def state_dict(self) -> dict[str, Any]:
        time.sleep(0.004)
        return super().state_dict()


class Rows:
    """An iterator with a state, of a dataset without one."""

    def __init__(self, dataset: Base) -> None:
        self.dataset, self.at = dataset, 0

    def __iter__(self) -> Iterator[torch.Tensor]:
        return self

    def __next__(self) -> torch.Tensor:
        if self.at >= self.dataset.rows:
            raise StopIteration
        self.at += 1
        return self.dataset.row(self.at - 1)

    def state_dict(self) -> dict[str, int]:
        return {"at": self.at}

    def load_state_dict(self, state: dict[str, int]) -> None:
        self.at = state["at"]


class StatefulIterator(Base):
    def __iter__(self) -> Iterator[torch.Tensor]:
        return Rows(self)


class Once(Base):
    """Begins where its state says, once; after that at the beginning, as many datasets do."""

    start = 0

    def __iter__(self) -> Iterator[torch.Tensor]:
        start, self.start = self.start, 0
        for at in range(start, self.rows):
            self.at = at + 1
            yield self.row(at)

    def state_dict(self) -> dict[str, Any]:
        return {"at": self.at, "epochs": self.epochs}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self.start, self.epochs = state["at"], state["epochs"]


class OnceAnEpoch(Once):
    """Counts its epochs, which its rows tell."""

    def __iter__(self) -> Iterator[torch.Tensor]:
        yield from super().__iter__()
        self.epochs += 1
        self.at = 0


class Buffered(StatefulGenerator):
    """Draws its rows from a buffer, which is part of its state."""

    def __init__(self, rows: int, draws: str) -> None:
        super().__init__(rows, draws)
        self.buffer: list[int] = []

    def __iter__(self) -> Iterator[torch.Tensor]:
        while self.at < self.rows or self.buffer:
            while len(self.buffer) < 4 and self.at < self.rows:
                self.buffer.append(self.at)
                self.at += 1
            yield self.row(self.buffer.pop(random.randrange(len(self.buffer))))
        self.at = 0
        self.epochs += 1

    def state_dict(self) -> dict[str, Any]:
        return {**super().state_dict(), "buffer": list(self.buffer)}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        super().load_state_dict(state)
        self.buffer = list(state["buffer"])


class SelfOnce(StatefulSelf):
    """Is its own iterator, and begins at the beginning unless a state was just loaded."""

    loaded = False

    def __iter__(self) -> Iterator[torch.Tensor]:
        if not self.loaded:
            self.at = 0
        self.loaded = False
        return self

    def load_state_dict(self, state: dict[str, Any]) -> None:
        super().load_state_dict(state)
        self.loaded = True


STATEFUL = (StatefulGenerator, StatefulSelf, SelfOnce, SlowState, StatefulIterator)
KINDS = {kind.__name__: kind for kind in (Stateless, *STATEFUL, Once, OnceAnEpoch, Buffered)}


class Collate:
    """Draws for each batch: from a generator of the process, or from one of its own."""

    def __init__(self, kind: str) -> None:
        self.kind, self.rng = kind, np.random.default_rng(3)

    def __call__(self, rows: Any) -> torch.Tensor:
        batch = torch.stack(rows) if isinstance(rows, list) else rows[None]
        drawn = torch.full((len(batch), 1), _drawn(self.kind, self.rng))
        return torch.cat([batch, drawn], dim=1)


DRAWS = ["random", "gauss", "numpy", "torch", "own", ""]


@dataclass(frozen=True)
class Program:
    kind: str
    rows: int
    draws: str
    batch: int | None
    workers: int
    persistent: bool
    drop_last: bool
    received: tuple[int, ...]  # batches of each epoch, at most
    kills: tuple[tuple[int, int, int], ...] = ()  # after so many batches of an epoch: who
    on_error: str = "raise"
    collate: str = "none"

    def run(self, loader_class: Any) -> list[Any]:
        torch.manual_seed(7)
        dataset = KINDS[self.kind](self.rows, self.draws)
        options: dict[str, Any] = {"drop_last": self.drop_last and self.batch is not None}
        if loader_class is DataLoader:
            options["on_error"] = self.on_error
        if self.collate != "none":
            options["collate_fn"] = Collate(self.collate)
        loader = loader_class(
            dataset,
            self.batch,
            num_workers=self.workers,
            persistent_workers=self.persistent,
            **options,
        )
        seen: list[Any] = []
        for epoch, most in enumerate(self.received):
            iterator = iter(loader)
            for number in itertools.count():
                self._kill(iterator, epoch, number)
                if number == most:
                    break
                if (batch := next(iterator, None)) is None:
                    break
                seen.append(batch.tolist())
            seen.append("end")
            if self.persistent:
                time.sleep(0.1)  # workers come to rest, and tell where they are
                self._kill(iterator, epoch, -1)
        return seen

    def _kill(self, iterator: Any, epoch: int, number: int) -> None:
        for when, after, worker in self.kills:
            if (when, after) == (epoch, number):
                process = iterator._workers[worker % self.workers]
                with contextlib.suppress(ProcessLookupError):  # it was killed before
                    os.kill(process.pid, signal.SIGKILL)
                end = time.monotonic() + PATIENCE_S
                while process.is_alive() and time.monotonic() < end:
                    time.sleep(0.001)


def programs(count: int, seed: int = 1) -> Iterator[Program]:
    chance = random.Random(seed)
    for _ in range(count):
        kind = chance.choice([*KINDS])
        rows = chance.choice([0, 1, 7, 12, 20, 21])
        batch = chance.choice([None, 1, 3, 4])
        persistent = chance.random() < 0.6
        epochs = chance.choice([1, 2, 3]) if persistent else chance.choice([1, 2])
        received = [chance.choice([99, 99, 99, 2, 5, 0]) for _ in range(epochs)]
        kills = []
        for _ in range(chance.randint(1, 3)):
            epoch = chance.randrange(epochs)
            after = chance.choice([-1, *range(15)])
            if kind == "Stateless" and received[epoch] != 99:
                after = -1  # left soon after a kill it has work that nobody does any more
            kills.append((epoch, after, chance.randrange(2)))
        yield Program(
            kind,
            rows,
            chance.choice(DRAWS),
            batch,
            chance.choice([1, 2]),
            persistent,
            chance.random() < 0.3,
            tuple(received),
            tuple(kills),
            "skip" if kind == "Stateless" else chance.choice(["raise", "raise", "skip"]),
            chance.choice(["none", "none", *DRAWS]),
        )


@pytest.mark.filterwarnings("ignore:antifreeze. drop_last dropped")
@pytest.mark.parametrize("part", some_of(range(6), 1))
def test_streams_whose_workers_are_killed_give_what_torch_gives_undisturbed(part: int) -> None:
    for program in itertools.islice(programs(72), part, None, 6):
        wanted = replace(program, kills=()).run(TorchLoader)
        assert program.run(DataLoader) == wanted, program


def test_a_stream_that_was_killed_before_its_end_is_not_given_twice() -> None:
    for after in range(9):
        kills = ((0, after, 0),)
        program = Program("StatefulGenerator", 20, "numpy", 3, 1, False, False, (99,), kills)
        wanted = replace(program, kills=()).run(TorchLoader)
        assert sum(len(batch) for batch in wanted if batch != "end") == 20
        assert program.run(DataLoader) == wanted, after


class StatefulBoth(Base):
    """Has a state, and an iterator with another."""

    def __iter__(self) -> Iterator[torch.Tensor]:
        return Counted(self)

    def state_dict(self) -> dict[str, int]:
        return {"seen": self.at}

    def load_state_dict(self, state: dict[str, int]) -> None:
        self.at = state["seen"]


class Counted(Rows):
    def __next__(self) -> torch.Tensor:
        row = super().__next__()
        self.dataset.at += 1
        return torch.cat([row, torch.tensor([self.dataset.at])])


KINDS["StatefulBoth"] = StatefulBoth


def test_both_states_are_used_where_there_are_two() -> None:
    for after in range(6):
        kills = ((0, after, 0),)
        program = Program("StatefulBoth", 20, "torch", 2, 1, False, False, (99,), kills)
        assert program.run(DataLoader) == replace(program, kills=()).run(TorchLoader), after


class Large(StatefulGenerator):
    """Has a state that is longer than a message to the process that workers come from."""

    def state_dict(self) -> dict[str, Any]:
        return {**super().state_dict(), "buffer": bytes(300_000)}


KINDS["Large"] = Large


@pytest.mark.parametrize("persistent", [False, True])
def test_a_large_state_is_no_obstacle(persistent: bool) -> None:
    kills = ((0, 4, 0), (0, 7, 1), (0, -1, 0))
    program = Program("Large", 20, "torch", 2, 2, persistent, False, (99, 99), kills)
    assert program.run(DataLoader) == replace(program, kills=()).run(TorchLoader)


class Shards(Base):
    """Has a state that says in which shard it is, and not where; and something that moves."""

    moves: str = ""
    size = 5

    def __iter__(self) -> Iterator[torch.Tensor]:
        while self.at * self.size < self.rows:
            for row in range(self.size):
                self.epochs += 1
                time.sleep(0.01)  # so that a state after each batch costs little beside it
                yield torch.tensor([0, 0, self.at * self.size + row])
            self.at += 1
        self.at = 0

    def state_dict(self) -> dict[str, Any]:
        state: dict[str, Any] = {"shard": self.at}
        if self.moves:
            state["moves"] = self.epochs if self.moves == "count" else time.time()
        return state

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self.at = state["shard"]


@pytest.mark.parametrize("moves", ["", "count", "time"])
def test_a_state_that_does_not_lead_back_gives_an_error_and_no_sample_twice(moves: str) -> None:
    lost = 0
    for after in range(2, 7):
        dataset = Shards(20, "")
        dataset.moves = moves
        iterator = iter(DataLoader(dataset, 2, num_workers=1))
        seen = [next(iterator) for _ in range(after)]
        os.kill(iterator._workers[0].pid, signal.SIGKILL)
        try:
            seen.extend(iterator)
        except RuntimeError as error:
            assert "gave up this worker's stream" in str(error) or "lead back" in str(error)
            lost += 1
            assert next(iterator, None) is None
        rows = [int(row) for batch in seen for row in batch[:, 2]]
        assert rows == list(range(len(rows))), after
        assert lost or len(rows) == 20
    assert lost


def test_a_state_that_is_useless_within_an_epoch_is_not_used_for_the_next() -> None:
    dataset = Shards(23, "")
    dataset.size = 4
    loader = DataLoader(dataset, 4, num_workers=1, persistent_workers=True)
    first = [batch.tolist() for batch in loader]
    os.kill(loader._iterator._workers[0].pid, signal.SIGKILL)
    assert [batch.tolist() for batch in loader] == first
    loader._iterator = None


def test_samples_that_differ_by_nan_alone_are_alike() -> None:
    nan, other = float("nan"), float("nan")
    assert print_of_batch([nan, {"a": [nan]}]) == print_of_batch([other, {"a": [other]}])
    assert print_of_batch([object()]) is None
    assert print_of_batch([np.array([object()])]) is None
