"""Every way to loop over a loader: torch's loader and ours give the same, and draw the same.

A program is a list of loops of random shapes over one loader; what it receives, and what the
program itself draws from torch's generator afterwards, is compared with torch's loader.
"""

from __future__ import annotations

import itertools
import random
import warnings
from collections.abc import Iterator
from typing import Any

import pytest
import torch
from torch.utils.data import DataLoader as TorchLoader
from torch.utils.data import IterableDataset, get_worker_info

from antifreeze import DataLoader

from ..repetition import some_of
from .loop_shapes import SHAPES, Seen, plain

BATCHES = 6


class Numbers:
    def __init__(self, length: int = 2 * BATCHES) -> None:
        self.length = length

    def __len__(self) -> int:
        return self.length

    def __getitem__(self, index: int) -> int:
        return index


class Stream(IterableDataset[int]):
    """Each worker's part, with a number drawn from the worker's generator."""

    def __iter__(self) -> Iterator[int]:
        info = get_worker_info()
        first, step = (0, 1) if info is None else (info.id, info.num_workers)
        for number in range(first, 2 * BATCHES, step):
            yield 1000 * number + int(torch.randint(1000, ()))


NOT_A_LOOP_AT_A_TIME = {
    "nested loops",
    "nested loops that are left",
    "zipped with itself",
    "two iterators",
    "a generator that waits",
    "two tasks",
    "asynchronous generators",
}


def run(loader_class: Any, shapes: list[str], arguments: dict[str, Any]) -> Seen:
    """Run a program. Returns all that it received, and what it draws itself in between."""
    torch.manual_seed(3)
    options = dict(arguments)
    dataset = Stream() if options.pop("streams") else Numbers()
    if options.pop("own_generator"):
        options["generator"] = torch.Generator().manual_seed(5)
    loader = loader_class(dataset, 2, **options)
    kept: dict[str, Any] = {}
    seen: Seen = []
    for name in shapes:
        seen += [name, plain(SHAPES[name](loader, kept)), int(torch.randint(10**6, ()))]
    return seen


def programs(count: int) -> Iterator[tuple[list[str], dict[str, Any]]]:
    chance = random.Random(20)
    shapes = [*SHAPES]
    for number in range(count):
        streams = chance.random() < 0.35
        workers = chance.choice([0, 1, 2, 2])
        names = [shapes[number % len(shapes)], *chance.choices(shapes, k=chance.randint(1, 3))]
        chance.shuffle(names)
        yield (
            names,
            {
                "streams": streams,
                "num_workers": workers,
                "persistent_workers": workers > 0 and chance.random() < 0.7,
                "shuffle": False if streams else chance.random() < 0.6,
                "own_generator": chance.random() < 0.3,
            },
        )


@pytest.mark.parametrize("part", some_of(range(4), 1))
def test_random_programs_receive_and_draw_what_they_do_with_torch(part: int) -> None:
    for names, arguments in itertools.islice(programs(64), part, None, 4):
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            warnings.filterwarnings("ignore", message="antifreeze: two loops")
            ours = run(DataLoader, names, arguments)
        assert ours == run(TorchLoader, names, arguments), (names, *arguments.items())


@pytest.mark.parametrize("name", SHAPES)
def test_workers_stay_and_only_two_loops_at_once_are_warned_of(name: str) -> None:
    loader = DataLoader(Numbers(40), 2, num_workers=1, persistent_workers=True)
    pids, kept = set(), dict[str, Any]()
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        for _ in range(3):
            SHAPES[name](loader, kept)
            pids |= {worker.pid for worker in loader._iterator._workers}
    assert len(pids) == 1
    told = [str(each.message) for each in caught]
    assert len(told) == (name in NOT_A_LOOP_AT_A_TIME), told
    assert all("two loops share this loader" in each for each in told)


# ---- how far ahead a sampler is asked ------------------------------------------------------------


class Watched:
    """A sampler of one's own that notes how often it was asked."""

    def __init__(self, length: int) -> None:
        self.length, self.asked = length, 0

    def __iter__(self) -> Iterator[int]:
        for index in range(self.length):
            self.asked += 1
            yield index
        self.asked += 1000


@pytest.mark.parametrize(("workers", "batch", "drop"), [(2, 2, False), (1, 3, True), (2, 1, False)])
def test_a_loop_that_is_left_has_drawn_from_its_generator_what_torch_has(
    workers: int, batch: int, drop: bool
) -> None:
    states = []
    for loader_class in (TorchLoader, DataLoader):
        found = []
        for received in (0, 1, 3, 12, 13, 14, 15, 16, 17):
            generator = torch.Generator().manual_seed(1)
            options: Any = {"shuffle": True, "drop_last": drop, "generator": generator}
            loader = loader_class(Numbers(17 * batch - 1), batch, num_workers=workers, **options)
            iterator = iter(loader)
            for _ in range(received):
                next(iterator, None)
            found.append(generator.get_state().tolist())
            del iterator
        states.append(found)
    assert states[0] == states[1]


def test_a_sampler_of_ones_own_is_asked_as_late_as_torch_asks_it() -> None:
    counts = []
    for loader_class in (TorchLoader, DataLoader):
        sampler = Watched(60)
        iterator = iter(loader_class(Numbers(60), 1, sampler=sampler, num_workers=2))
        found = [sampler.asked]
        for _ in iterator:
            found.append(sampler.asked)
        counts.append(found)
    assert counts[0] == counts[1]
