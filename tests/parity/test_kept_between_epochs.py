"""What a loader without workers keeps between epochs changes no data, whatever a program does."""

from __future__ import annotations

import functools
import gc
import random
from collections import deque
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch.utils.data import IterableDataset

from antifreeze import DataLoader
from antifreeze._engine.single_process_iterator import KEPT
from antifreeze._loading.rng_adapters import own_generators
from antifreeze._loading.rng_search import generators_in
from antifreeze._loading.sample_rng import Randomness

from ..repetition import some_of

LENGTH = 7
BATCH = 3


class Holder:
    """A class whose generator may be changed."""

    rng: Any = None


class Transform:
    def __init__(self, seed: int) -> None:
        self.seed, self.rng = seed, random.Random(seed)


def closing_over(rng: random.Random) -> Callable[[], float]:
    return lambda: rng.random()


class Draws:
    """Draws as it is told to, from one sample on, or for some samples only."""

    def __init__(self) -> None:
        self.kinds: tuple[str, ...] = ()
        self.every, self.first = 1, 0
        self.transform: Any = None
        self.rng: Any = None
        self.held: list[Any] = [0, "a"]
        self.closure: Any = None

    def __len__(self) -> int:
        return LENGTH

    def __getitem__(self, index: int) -> list[float]:
        draws: list[float] = []
        if index >= self.first and index % self.every == 0:
            draws = [self.draw(kind) for kind in self.kinds]
        return [float(index), *draws, *[0.0] * (4 - len(draws))]

    def draw(self, kind: str) -> float:
        match kind:
            case "random":
                return random.random()
            case "gauss":
                return random.gauss(0, 1)
            case "numpy":
                return float(np.random.rand())
            case "normal":
                return float(np.random.normal())
            case "torch":
                return float(torch.rand(1))
            case "randn":
                return float(torch.randn(1))
            case "named":
                return float(torch.initial_seed() % 1009)
            case "own":
                return 0.0 if self.rng is None else float(self.rng.random())
            case "transform":
                return 0.0 if self.transform is None else self.transform.rng.random()
            case "held":
                return sum(it.random() for it in self.held if isinstance(it, random.Random))
            case "class":
                return 0.0 if Holder.rng is None else float(Holder.rng.random())
            case "closure":
                return 0.0 if self.closure is None else float(self.closure())
        raise AssertionError(kind)


KINDS = ("random", "gauss", "numpy", "normal", "torch", "randn", "named")
KINDS += ("own", "transform", "held", "class", "closure")
numbers = st.integers(0, 3)
changes = st.one_of(
    st.tuples(st.just("kinds"), st.lists(st.sampled_from(KINDS), max_size=3, unique=True)),
    st.tuples(st.just("first"), st.integers(0, LENGTH)),
    st.tuples(st.just("every"), st.integers(1, 4)),
    st.tuples(st.just("own"), st.tuples(st.sampled_from(["python", "numpy", "legacy"]), numbers)),
    st.tuples(st.sampled_from(["transform", "hold", "class", "closure", "no own"]), numbers),
    st.tuples(st.sampled_from(["seed random", "seed numpy", "seed torch", "draw own"]), numbers),
    st.tuples(st.sampled_from(["draw", "gauss", "normal", "randn", "iter", "break"]), numbers),
)
programs = st.lists(st.lists(changes, max_size=4), min_size=2, max_size=6)


def change(dataset: Draws, loader: DataLoader[Any], what: str, value: Any) -> None:
    """Do something that a program may do between two epochs."""
    made = {"python": random.Random, "numpy": np.random.default_rng}
    made["legacy"] = np.random.RandomState
    match what:
        case "kinds":
            dataset.kinds = tuple(value)
        case "first":
            dataset.first = value
        case "every":
            dataset.every = value
        case "own":
            dataset.rng = None  # so that the new one may have the old one's place in memory
            gc.collect()
            dataset.rng = made[value[0]](value[1])
        case "no own":
            dataset.rng = None
        case "draw own" if dataset.rng is not None:
            dataset.rng.random()
        case "transform":
            dataset.transform = Transform(value)
        case "hold":
            dataset.held = [0, random.Random(value), "a"] if value else [0, "a"]
        case "class":
            Holder.rng = random.Random(value) if value else None
            dataset.kept = Holder() if value else None
        case "closure":
            dataset.closure = closing_over(random.Random(value)) if value else None
        case "seed random":
            random.seed(value)
        case "seed numpy":
            np.random.seed(value)
        case "seed torch":
            torch.manual_seed(value)
        case "draw":
            random.random(), np.random.rand(), torch.rand(1)
        case "gauss":
            random.gauss(0, 1)
        case "normal":
            np.random.normal()
        case "randn":
            torch.randn(1)
        case "iter":
            iter(loader)
        case "break":
            for _ in loader:
                break


def states() -> tuple[Any, ...]:
    numpys = np.random.get_state()
    return random.getstate(), str(numpys), torch.get_rng_state().tolist(), torch.initial_seed()


def epoch(loader: DataLoader[Any], seed: int) -> list[Any]:
    assert loader.generator is not None
    loader.generator.manual_seed(seed)
    return [torch.stack(batch, 1).tolist() for batch in loader]


def fresh(dataset: Any, workers: int = 0) -> DataLoader[Any]:
    return DataLoader(
        dataset, BATCH, shuffle=True, num_workers=workers, generator=torch.Generator()
    )


@pytest.fixture(autouse=True)
def generators_as_before() -> Iterator[None]:
    before = random.getstate(), np.random.get_state(), torch.get_rng_state()
    yield
    Holder.rng = None
    random.setstate(before[0])
    np.random.set_state(before[1])
    torch.set_rng_state(before[2])


@pytest.mark.parametrize("examples", some_of([40, 150], 1))
def test_a_loader_of_many_epochs_gives_what_a_new_one_would(examples: int) -> None:
    @settings(max_examples=examples, deadline=None)
    @given(programs)
    def check(program: list[Any]) -> None:
        Holder.rng = None
        dataset = Draws()
        loader = fresh(dataset)
        for number, steps in enumerate(program):
            for what, value in steps:
                change(dataset, loader, what, value)
            before = states()
            got = epoch(loader, number)
            assert states() == before  # the caller's generators are not touched
            assert got == epoch(fresh(dataset), number)

    check()


FIXED: tuple[list[list[tuple[str, Any]]], ...] = (
    [[], [], [("kinds", ["random", "numpy", "torch"])], []],  # draws from the third epoch on
    [[("kinds", ["numpy"]), ("first", LENGTH - 1)], [], [("first", 2)]],
    [[("kinds", ["transform"])], [("transform", 1)], [("transform", 2)]],
    [[("kinds", ["own", "gauss"]), ("own", ("numpy", 1))], [("own", ("numpy", 2))]],
    [[("kinds", ["class", "closure"])], [("class", 3)], [("closure", 2)]],
)


@pytest.mark.parametrize("program", FIXED)
def test_the_number_of_workers_changes_nothing_in_any_epoch(program: Any) -> None:
    dataset = Draws()
    loader, with_workers = fresh(dataset), fresh(dataset, 2)
    for number, steps in enumerate(program):
        for what, value in steps:
            change(dataset, loader, what, value)
        assert epoch(loader, number) == epoch(with_workers, number)


# ---- what is kept, and when ----------------------------------------------------------------------


def kept(loader: DataLoader[Any]) -> list[Any]:
    drivers: list[Any] = vars(loader).get(KEPT, [])
    return drivers


def test_a_driver_is_kept_for_the_next_loop_and_never_shared_by_two() -> None:
    loader: DataLoader[Any] = DataLoader(list(range(4)))
    list(loader)
    (driver,) = kept(loader)
    first, second = iter(loader), iter(loader)
    assert first._driver is driver
    assert second._driver is not driver
    assert [int(next(first)), int(next(second)), int(next(first))] == [0, 0, 1]
    del first
    assert kept(loader) == [driver]
    third = iter(loader)
    assert [int(each) for each in third] == [0, 1, 2, 3]
    assert kept(loader) == []  # while somebody holds the iterator
    assert [int(each) for each in second] == [1, 2, 3]


def test_many_loops_at_once_leave_two_drivers_and_all_counts() -> None:
    loader: DataLoader[Any] = DataLoader(list(range(4)))
    loops = [iter(loader) for _ in range(5)]
    for loop in loops:
        assert len(list(loop)) == 4
    del loop, loops
    assert len(kept(loader)) == 2
    assert loader.stats()["batches"] == 20
    assert loader.stats()["epochs"] == 5


def test_another_collate_function_is_used_at_once() -> None:
    loader: DataLoader[Any] = DataLoader([1, 2], batch_size=2)
    assert [batch.tolist() for batch in loader] == [[1, 2]]
    loader.collate_fn = sum
    assert list(loader) == [3]


def test_another_policy_is_used_at_once() -> None:
    loader: DataLoader[Any] = DataLoader([1, None, 3], batch_size=3, collate_fn=list)
    assert list(loader) == [[1, None, 3]]
    loader.on_error = "skip"
    loader.collate_fn = lambda batch: [each for each in batch]  # noqa: C416
    assert list(loader) == [[1, None, 3]]
    assert loader.on_error == "skip"


class Stream(IterableDataset[int]):
    def __init__(self) -> None:
        self.length = 3

    def __iter__(self) -> Iterator[int]:
        if self.length < 0:
            raise ValueError("it cannot begin")
        return iter(range(self.length))


def test_a_stream_is_begun_anew_in_every_epoch() -> None:
    stream = Stream()
    loader: DataLoader[Any] = DataLoader(stream, batch_size=2)
    assert [batch.tolist() for batch in loader] == [[0, 1], [2]]
    stream.length = 2
    assert [batch.tolist() for batch in loader] == [[0, 1]]
    stream.length = -1
    with pytest.raises(ValueError, match="cannot begin"):
        iter(loader)
    stream.length = 1
    assert [batch.tolist() for batch in loader] == [[0]]
    assert loader.stats()["batches"] == 4


def test_time_between_epochs_is_no_time_of_the_loop(monkeypatch: pytest.MonkeyPatch) -> None:
    loader: DataLoader[Any] = DataLoader(list(range(3)))
    for _ in range(3):
        list(loader)
    (driver,) = kept(loader)
    rows = driver._rows
    rows[7:] = [number + 1000.0 * (at % 7 < 2) for at, number in enumerate(rows[7:])]
    driver._begun[:] = [0, 7]
    assert loader.stats()["away_s"] < 100


def test_what_was_counted_outlives_the_loader() -> None:
    loader: DataLoader[Any] = DataLoader(list(range(3)))
    list(loader)
    accounts = loader._entry.accounts
    assert accounts.batches == 0  # nobody has asked yet
    del loader
    gc.collect()
    assert accounts.batches == 3


def test_a_generator_is_quiet_after_an_epoch_without_a_draw_and_wakes() -> None:
    dataset = Draws()
    loader = fresh(dataset)
    epoch(loader, 0)
    epoch(loader, 1)
    (driver,) = kept(loader)
    assert repr(driver._randomness).count("quiet") == 3
    dataset.kinds = ("numpy",)
    assert epoch(loader, 2) == epoch(fresh(dataset), 2)
    assert repr(driver._randomness).count("quiet") == 2


def test_another_source_of_bits_in_numpys_own_generator_is_seen() -> None:
    dataset = Draws()
    randomness = Randomness(dataset, lent=True)
    assert randomness.renew(dataset)
    before = np.random.mtrand._rand._bit_generator
    np.random.set_bit_generator(np.random.PCG64(1))
    try:
        assert not randomness.renew(dataset)
    finally:
        np.random.set_bit_generator(before)


# ---- the fast search finds what the thorough one does --------------------------------------------


class Thing:
    def __init__(self, inner: Any) -> None:
        self.inner = inner


class Slotted:
    __slots__ = ("inner", "never")

    def __init__(self, inner: Any) -> None:
        self.inner = inner


class Listed(list[Any]):
    def __init__(self, inner: Any) -> None:
        super().__init__([inner])
        self.more = inner


class Mapped(dict[str, Any]):
    def __init__(self, inner: Any) -> None:
        super().__init__(inner=inner)


def around(inner: Any) -> Callable[[], Any]:
    return lambda: inner


def defaulting(inner: Any) -> Callable[[], Any]:
    def function(*, held: Any = inner) -> Any:
        return held

    return function


class Callee:
    def __init__(self, inner: Any) -> None:
        self.inner = inner

    def method(self) -> None: ...


WRAPPED: tuple[Callable[[Any], Any], ...] = (
    Thing,
    Slotted,
    Listed,
    Mapped,
    around,
    defaulting,
    lambda inner: [1, inner],
    lambda inner: ("a", inner, 2.0),
    lambda inner: {"a": 1, "b": inner},
    lambda inner: deque([inner]),
    lambda inner: [*range(40), inner],  # out of reach
    lambda inner: functools.partial(print, inner, a=inner),
    lambda inner: Callee(inner).method,
    lambda inner: type("Made", (), {"held": inner, "by": staticmethod(around(inner))})(),
    lambda inner: [inner, inner, [inner]],
)
leaves = st.sampled_from(
    [
        lambda: random.Random(1),
        lambda: np.random.default_rng(1),
        lambda: np.random.RandomState(1),
        lambda: torch.Generator(),
        lambda: random._inst,
        lambda: 5,
        lambda: torch.zeros(2),
    ]
).map(lambda make: make())
graphs = st.recursive(
    leaves,
    lambda inner: st.one_of(
        st.builds(lambda wrap, it: wrap(it), st.sampled_from(WRAPPED), inner),
        st.builds(lambda a, b: Thing([a, b]), inner, inner),
    ),
    max_leaves=6,
)


def adapted(generator: Any) -> int:
    """Return what tells a found generator from others: the object, or its source of bits."""
    held = vars(generator)
    return id(held.get("_bits", held.get("_generator")))


def named(thing: Any) -> set[int]:
    bits = getattr(thing, "bit_generator", getattr(thing, "_bit_generator", None))
    return {id(thing), id(bits)}


@settings(max_examples=300, deadline=None)
@given(graphs)
def test_the_fast_search_misses_no_generator(graph: Any) -> None:
    roots = (Thing(graph), len)
    thorough = {adapted(generator) for _, generator in own_generators(roots)}
    fast = set().union(*map(named, generators_in(roots)))
    assert thorough <= fast


def test_the_fast_search_sees_what_changes_in_classes_and_modules(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    rng, other = random.Random(1), random.Random(2)
    root = Holder()
    here = __import__("sys").modules[__name__]
    assert rng not in generators_in((root,))
    monkeypatch.setattr(Holder, "rng", rng)
    assert rng in generators_in((root,))
    monkeypatch.setattr(Holder, "rng", other)
    assert rng not in generators_in((root,))
    monkeypatch.setattr(here, "GLOBAL_RNG", rng, raising=False)
    assert rng in generators_in((root,))
    monkeypatch.setattr(here.closing_over, "__defaults__", (np.random.RandomState(3),))
    assert len(generators_in((root,))) == 3
    monkeypatch.setattr(Holder, "draw", around(random.Random(5)), raising=False)
    assert len(generators_in((root,))) == 4
    monkeypatch.setattr(Holder, "static", staticmethod(around(random.Random(6))), raising=False)
    assert len(generators_in((root,))) == 5


def test_the_fast_search_stops_where_the_thorough_one_does() -> None:
    deep: Any = random.Random(1)
    for _ in range(12):
        deep = [deep]
    assert generators_in((Thing(deep),)) == []
    many = Thing([Thing([[] for _ in range(31)]) for _ in range(31)] + [[[random.Random(1)]]])
    assert len(generators_in((many,))) == len(own_generators((many,)))
