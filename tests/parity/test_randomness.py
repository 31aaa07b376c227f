"""Same seed, same batches: what a sample draws depends on its place in the epoch, and on nothing
else. Ours alone: torch's samples draw from the stream of whichever worker loads them."""

from __future__ import annotations

import functools
import os
import random
import signal
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest
import torch
from torch.utils.data import IterableDataset, Subset

from antifreeze import DataLoader
from antifreeze._loading.rng_adapters import _offset_in_python, _offset_in_torch, own_generators
from antifreeze._loading.sample_rng import QUIET_AFTER, Randomness

GLOBAL: dict[str, Callable[[], float]] = {
    "random": random.random,
    "random.gauss": lambda: random.gauss(0, 1),
    "numpy": np.random.rand,
    "numpy.normal": np.random.normal,
    "torch": lambda: float(torch.rand(1)),
    "torch.randn": lambda: float(torch.randn(1)),
}


class Draws:
    """Draws from every generator there is, from one sample on."""

    def __init__(self, length: int = 120, first: int = 0, names: Any = None) -> None:
        self.length, self.first = length, first
        self.names = list(GLOBAL if names is None else names)

    def __len__(self) -> int:
        return self.length

    def __getitem__(self, index: int) -> list[float]:
        draws = [GLOBAL[name]() for name in self.names] if index >= self.first else []
        return [float(index), *draws]


class Owns(Draws):
    """Draws from generators of its own, as people keep them."""

    def __init__(self, length: int = 120, first: int = 0) -> None:
        super().__init__(length, first)
        self.rng = np.random.default_rng(0)
        self.twin = np.random.default_rng(0)
        self.legacy = np.random.RandomState(1)
        self.python = random.Random(2)
        self.torch = torch.Generator().manual_seed(3)
        self.deep = {"transforms": [np.random.Generator(np.random.MT19937(4))]}

    def __getitem__(self, index: int) -> list[float]:
        if index < self.first:
            return [float(index)]
        pair = self.rng.normal(), self.twin.normal()
        assert pair[0] == pair[1]  # equal generators stay equal: people pair image and mask so
        return [
            float(index),
            pair[0],
            self.legacy.normal(),
            self.python.gauss(0, 1),
            float(torch.randn(1, generator=self.torch)),
            self.deep["transforms"][0].random(),
        ]


class InBatches(Draws):
    def __getitems__(self, indices: list[int]) -> list[list[float]]:
        return [Draws.__getitem__(self, index) for index in indices]


def as_drawn(rows: Any) -> Any:
    """Collate, and draw while at it."""
    return rows, random.random(), np.random.normal(), float(torch.randn(1))


def epochs(dataset: Any, workers: int, count: int = 2, **arguments: Any) -> list[list[Any]]:
    """Run a program of so many epochs, always from the same seeds."""
    torch.manual_seed(11)
    random.seed(12)
    np.random.seed(13)
    arguments = {"batch_size": 7, "shuffle": True, "collate_fn": as_drawn} | arguments
    loader = DataLoader(dataset, num_workers=workers, **arguments)
    return [list(loader) for _ in range(count)]


DATASETS = {"global": Draws, "own": Owns, "getitems": InBatches}


@pytest.mark.filterwarnings("ignore:This DataLoader will create")
@pytest.mark.parametrize("workers", [1, 2, 3, 5])
@pytest.mark.parametrize("name", DATASETS)
def test_the_number_of_workers_changes_nothing(name: str, workers: int) -> None:
    alone = epochs(DATASETS[name](), 0)
    assert epochs(DATASETS[name](), workers) == alone
    assert alone[0] != alone[1]


@pytest.mark.parametrize("prefetch_factor", [1, 7])
def test_the_prefetch_factor_changes_nothing(prefetch_factor: int) -> None:
    assert epochs(Draws(), 2, prefetch_factor=prefetch_factor) == epochs(Draws(), 0)


@pytest.mark.parametrize("batch_size", [None, 1])
def test_single_samples_and_no_batches_at_all(batch_size: int | None) -> None:
    arguments: dict[str, Any] = {"batch_size": batch_size}
    assert epochs(Draws(), 2, **arguments) == epochs(Draws(), 0, **arguments)


def test_persistent_workers_draw_anew_in_every_epoch_whatever_their_number() -> None:
    two, three = (epochs(Owns(), n, 3, persistent_workers=True, shuffle=False) for n in (2, 3))
    assert two == three
    assert two[0] != two[1] != two[2] != two[0]
    assert two[0] == epochs(Owns(), 0, 1, shuffle=False)[0]


@pytest.mark.parametrize("name", ["global", "own"])
def test_a_worker_that_is_killed_changes_nothing(name: str) -> None:
    alone = epochs(DATASETS[name](), 0)
    torch.manual_seed(11)
    loader = DataLoader(DATASETS[name](), 7, True, num_workers=2, collate_fn=as_drawn)
    for expected in alone:
        iterator = iter(loader)
        got = []
        for place, batch in enumerate(iterator):
            got.append(batch)
            if place in (3, 9):
                os.kill(iterator._workers[place % 2].pid, signal.SIGKILL)
        assert got == expected


@functools.cache
def always_drawn(name: str) -> list[Any]:
    return epochs(DATASETS[name](6000), 0, 1, shuffle=False, batch_size=20)[0]


@pytest.mark.parametrize("workers", [0, 1, 2])
@pytest.mark.parametrize("name", ["global", "own"])
def test_a_dataset_that_begins_to_draw_late_is_seeded_as_if_it_always_had(
    name: str, workers: int
) -> None:
    # In torch's order, no shuffling: long after every generator has turned quiet.
    always = always_drawn(name)
    late = epochs(DATASETS[name](6000, first=5000), workers, 1, shuffle=False, batch_size=20)[0]
    assert len(late) == 300
    assert late[250:] == always[250:]
    assert [batch[1:] for batch in late] == [batch[1:] for batch in always]  # collate's own


@pytest.mark.parametrize("name", GLOBAL)
def test_each_generator_by_itself(name: str) -> None:
    dataset = Draws(60, first=45, names=[name])
    plain: dict[str, Any] = {"shuffle": False, "collate_fn": list, "batch_size": 3}
    alone = epochs(dataset, 0, **plain)
    assert epochs(dataset, 2, **plain) == alone
    draws = [row[1] for batch in alone[0] for row in batch if len(row) > 1]
    assert len(set(draws)) == 15  # no two samples draw the same


def test_without_workers_the_caller_does_not_notice() -> None:
    dataset = Owns()
    dataset.draw_too = Draws()
    python, numpy, own = random.getstate(), np.random.get_state(), dataset.rng.bit_generator.state
    random.gauss(0, 1)  # keeps half of a pair for the next call
    np.random.normal()
    torch.manual_seed(5)
    torch.randn(1)
    expected = [GLOBAL[name]() for name in GLOBAL]
    random.setstate(python)
    np.random.set_state(numpy)
    random.gauss(0, 1)
    np.random.normal()
    torch.manual_seed(5)
    torch.randn(1)
    generator = torch.Generator().manual_seed(6)
    for each in (Draws(40), Draws(200, first=190), Owns(40), dataset):
        list(DataLoader(each, 5, generator=generator, collate_fn=as_drawn))
    assert [GLOBAL[name]() for name in GLOBAL] == expected
    assert dataset.rng.bit_generator.state == own


@pytest.mark.parametrize("name", GLOBAL)
def test_without_workers_the_callers_stream_goes_on_between_batches(name: str) -> None:
    """Also where a call uses what an earlier one kept: of a pair of normal numbers."""

    def draws(dataset: Any) -> list[float]:
        random.seed(1)
        np.random.seed(2)
        torch.manual_seed(3)
        generator = torch.Generator().manual_seed(6)
        loader = DataLoader(dataset, 5, generator=generator, collate_fn=as_drawn)
        return [GLOBAL[name]() for _ in loader]

    undisturbed = draws([0] * 200)
    assert len(set(undisturbed)) == 40
    assert draws(Draws(200)) == undisturbed
    assert draws(Draws(200, first=150)) == undisturbed


def test_a_late_draw_is_noticed_even_if_the_caller_left_half_of_a_pair() -> None:
    def run(workers: int) -> list[Any]:
        torch.manual_seed(3)
        random.gauss(0, 1)  # the other half waits for the next call
        return list(DataLoader(Draws(300, 250, ["random.gauss"]), None, num_workers=workers))

    assert run(0) == run(1)


def test_two_runs_without_a_seed_differ() -> None:
    first, second = (list(DataLoader(Draws(8), 2, num_workers=1)) for _ in range(2))
    assert str(first) != str(second)


def test_numpy_and_torch_do_not_draw_the_same() -> None:
    (row,) = list(DataLoader(Draws(1, names=["numpy", "torch", "random"]), None))
    assert len({round(value, 6) for value in row[1:]}) == 3


class Named(Draws):
    def __getitem__(self, index: int) -> Any:
        torch.rand(1)
        info = torch.utils.data.get_worker_info()
        assert info is not None
        return torch.initial_seed(), info.seed, info.id


def test_initial_seed_still_names_the_workers_seed() -> None:
    for batch in DataLoader(Named(40), None, num_workers=2):
        assert batch[0] == batch[1]


class DrawsAndRaises(Draws):
    def __getitem__(self, index: int) -> float:
        value = random.random() if index >= 40 else 0.0
        if value > 0.5:
            raise ValueError(f"{index}: {value}")
        return value


def test_an_exception_that_depends_on_a_draw_is_the_same_too() -> None:
    def run(workers: int) -> list[str]:
        torch.manual_seed(3)
        iterator, seen = iter(DataLoader(DrawsAndRaises(60), num_workers=workers)), []
        while True:
            try:
                seen.append(str(next(iterator)))
            except StopIteration:
                return seen
            except ValueError as error:
                seen.append(str(error.args[0]).strip().rpartition(" ")[-1])

    alone = run(0)
    assert len([text for text in alone if "tensor" not in text]) > 3
    assert alone == run(1) == run(2)


class Stream(IterableDataset[float]):
    def __iter__(self) -> Iterator[float]:
        for _ in range(10):
            yield random.random() + np.random.rand() + float(torch.rand(1))


def test_a_stream_gives_the_same_for_the_same_number_of_workers() -> None:
    first, second = (epochs(Stream(), 2, shuffle=None, collate_fn=list) for _ in range(2))
    assert first == second


# ---- the parts --------------------------------------------------------------------------------


def test_the_words_of_generators_lie_where_we_look_for_them() -> None:
    assert _offset_in_python() is not None
    assert _offset_in_torch() is not None


def test_generators_are_found_by_path_to_a_small_depth_and_among_many_things() -> None:
    dataset = Owns()
    dataset.paths = [(f"{n}.jpg", n) for n in range(100_000)]
    dataset.inner = Draws()
    dataset.inner.aug = Draws()
    dataset.inner.aug.rng = random.Random(5)
    dataset.secret = random.SystemRandom()
    dataset.shared = random._inst
    assert sorted(path for path, _ in own_generators((dataset,))) == [
        "Owns.deep['transforms'][0]",
        "Owns.inner.aug.rng",
        "Owns.legacy",
        "Owns.python",
        "Owns.rng",
        "Owns.torch",
        "Owns.twin",
    ]


class Composed(Draws):
    """Draws from generators where people hide them."""

    def __init__(self, where: str) -> None:
        super().__init__(60)
        self.samples = [(f"{n}.jpg", n) for n in range(2000)]
        rng = np.random.default_rng(3)
        step = Step(rng)
        self.transform: Any = {
            "compose": lambda: Compose([Compose([step])]),
            "slots": lambda: Slotted(rng),
            "bound method": lambda: step.apply,
            "partial": lambda: functools.partial(drawn_from, rng=rng),
            "closure": lambda: lambda: drawn_from(rng),
        }[where]()

    def __getitem__(self, index: int) -> list[float]:
        return [index, self.transform()]


class Step:
    def __init__(self, rng: Any) -> None:
        self.rng = rng

    def apply(self) -> float:
        return float(self.rng.random())

    __call__ = apply


class Slotted:
    __slots__ = ("rng",)

    def __init__(self, rng: Any) -> None:
        self.rng = rng

    def __call__(self) -> float:
        return float(self.rng.random())


class Compose:
    def __init__(self, transforms: list[Any]) -> None:
        self.transforms = transforms

    def __call__(self) -> float:
        return float(sum(transform() for transform in self.transforms))


def drawn_from(rng: Any) -> float:
    return float(rng.random())


@pytest.mark.parametrize("where", ["compose", "slots", "bound method", "partial", "closure"])
def test_generators_are_found_where_people_hide_them(where: str) -> None:
    dataset = Subset(Subset(Composed(where), range(60)), range(60))
    assert epochs_of_rows(dataset, 0) == epochs_of_rows(dataset, 2)


def reseed(worker: int) -> None:
    info = torch.utils.data.get_worker_info()
    assert info is not None
    info.dataset.rng = np.random.default_rng(info.seed)


def test_what_worker_init_fn_seeds_does_not_decide() -> None:
    def run(workers: int) -> list[Any]:
        torch.manual_seed(1)
        init: Any = {"worker_init_fn": reseed} if workers else {}
        dataset = Composed("closure")
        dataset.transform = None
        dataset.rng = np.random.default_rng(0)
        dataset.__class__ = DrawsFromRng
        return list(DataLoader(dataset, None, num_workers=workers, **init))

    assert run(0) == run(1) == run(2)


class DrawsFromRng(Composed):
    def __getitem__(self, index: int) -> list[float]:
        return [index, float(self.rng.random())]


class Lazy(list[Any]):
    def __getitem__(self, place: Any) -> Any:
        raise AssertionError("to look for generators must load nothing")


class Proxy:
    __slots__ = ()

    @property
    def __dict__(self) -> Any:
        raise LookupError("who has none need not be polite")


class Half(random.Random):
    def getstate(self) -> Any:
        raise NotImplementedError


def test_to_look_for_generators_runs_no_code_of_the_dataset() -> None:
    dataset = Draws(4)
    dataset.lazy = Lazy([1, random.Random(1)])
    dataset.proxy, dataset.half = Proxy(), Half()
    assert [path for path, _ in own_generators((dataset,))] == ["Draws.lazy[1]"]
    assert len(list(DataLoader(dataset, num_workers=1))) == 4


def test_another_source_of_bits_in_numpys_own_generator() -> None:
    dataset = Draws(40, names=["numpy"])
    before = np.random.get_bit_generator()
    np.random.set_bit_generator(np.random.PCG64(1))
    try:
        assert epochs_of_rows(dataset, 0) == epochs_of_rows(dataset, 2)
    finally:
        np.random.set_bit_generator(before)


def epochs_of_rows(dataset: Any, workers: int) -> list[Any]:
    torch.manual_seed(1)
    return [list(DataLoader(dataset, None, num_workers=workers)) for _ in range(2)]


def test_a_generator_turns_quiet_and_wakes_for_good() -> None:
    chance = Randomness()
    chance.open(1, epoch=0)
    for position in range(QUIET_AFTER):
        assert chance.sows
        chance.begin(position)
        chance.sow(0)
        assert not chance.end()
    assert not chance.sows
    chance.begin(QUIET_AFTER)
    random.random()
    assert chance.end()  # load it again
    assert repr(chance) == "<Randomness random drawn, numpy.random quiet, torch quiet>"
    for position in range(3 * QUIET_AFTER):
        chance.begin(position)
        chance.sow(0)
        assert not chance.end()
    assert chance.sows
