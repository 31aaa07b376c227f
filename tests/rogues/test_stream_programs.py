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

from ..patience import PATIENCE_S


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


KINDS = {
    kind.__name__: kind
    for kind in (Stateless, StatefulGenerator, StatefulSelf, SlowState, StatefulIterator)
}
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

    def run(self, loader_class: Any) -> list[Any]:
        torch.manual_seed(7)
        dataset = KINDS[self.kind](self.rows, self.draws)
        options: dict[str, Any] = {"drop_last": self.drop_last and self.batch is not None}
        if loader_class is DataLoader:
            options["on_error"] = self.on_error
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
        received = [chance.choice([99, 99, 99, 2, 5]) for _ in range(epochs)]
        kills = []
        for _ in range(chance.randint(1, 3)):
            epoch = chance.randrange(epochs)
            # A loop that is left soon after a kill leaves work that nobody does any more.
            after = chance.choice([-1, *range(15)]) if received[epoch] == 99 else -1
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
        )


@pytest.mark.filterwarnings("ignore:antifreeze. drop_last dropped")
@pytest.mark.parametrize("part", range(4))
def test_streams_whose_workers_are_killed_give_what_torch_gives_undisturbed(part: int) -> None:
    for program in itertools.islice(programs(48), part, None, 4):
        wanted = replace(program, kills=()).run(TorchLoader)
        assert program.run(DataLoader) == wanted, program


def test_a_stream_that_was_killed_before_its_end_is_not_given_twice() -> None:
    for after in range(9):
        kills = ((0, after, 0),)
        program = Program("StatefulGenerator", 20, "numpy", 3, 1, False, False, (99,), kills)
        wanted = replace(program, kills=()).run(TorchLoader)
        assert sum(len(batch) for batch in wanted if batch != "end") == 20
        assert program.run(DataLoader) == wanted, after


class Shards(Base):
    """Has a state that says in which shard it is, and not where."""

    def __iter__(self) -> Iterator[torch.Tensor]:
        while self.at * 3 < self.rows:
            for row in range(3):
                yield self.row(self.at * 3 + row)
            self.at += 1

    def state_dict(self) -> dict[str, int]:
        return {"shard": self.at}

    def load_state_dict(self, state: dict[str, int]) -> None:
        self.at = state["shard"]


def test_a_state_that_does_not_change_with_a_sample_is_not_believed() -> None:
    loader = DataLoader(Shards(60, ""), 4, num_workers=1)
    iterator = iter(loader)
    seen = [next(iterator) for _ in range(3)]
    os.kill(iterator._workers[0].pid, signal.SIGKILL)  # type: ignore[attr-defined]
    with pytest.raises(RuntimeError, match="gave up this worker's stream"):
        seen.extend(iterator)
    rows = [int(row) for batch in seen for row in batch[:, 2]]
    assert rows == list(range(len(rows)))
