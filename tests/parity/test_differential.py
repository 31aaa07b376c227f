"""Generated programs through torch's loader and ours: batch by batch, error by error."""

import random
import warnings
from collections import Counter
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import HealthCheck, Phase, assume, given, settings
from hypothesis import strategies as st
from torch.utils.data import BatchSampler, SequentialSampler, SubsetRandomSampler

from antifreeze._engine.defaults import NAMES

from ..repetition import some_of
from .observe import (
    LOADERS,
    Batch,
    Event,
    LoaderClass,
    bounded,
    describe,
    first_line,
    watch,
    without_worker_numbers,
)
from .programs import (
    COLLATES,
    DRAWN_KEYS,
    RAISED,
    SURE_FORMS,
    FailingCollate,
    MapBatches,
    MapRows,
    Streams,
)

# Derandomized: a failure is the same failure tomorrow. Processes are slow, so few examples there.
SETTINGS = {
    "deadline": None,
    "derandomize": True,
    "database": None,
    "suppress_health_check": list(HealthCheck),
}
QUICK = settings(max_examples=150, **SETTINGS)
# Not shrunk: a failure that is a hang would take the time limit again and again.
UNSHRUNK = {**SETTINGS, "phases": (Phase.explicit, Phase.generate)}
# How many programs: all of them in `make test-all`.
WITH_WORKERS = pytest.mark.parametrize("examples", some_of([10, 35], 1))
FEW = pytest.mark.parametrize("examples", some_of([5, 15], 1))

PROGRAM_S = 40  # a program takes a fraction of a second


@dataclass(frozen=True)
class Program:
    """One program: a dataset and the arguments of a loader, all made afresh for each run."""

    dataset: Any
    arguments: dict[str, Any] = field(default_factory=dict)
    order: str = "sequential"
    indices: tuple[int, ...] = ()
    collate: Any = None
    generator_seed: int | None = None
    epochs: int = 2

    def loader(self, loader_class: LoaderClass) -> torch.utils.data.DataLoader:
        """Build the loader; every stateful argument is new."""
        arguments = dict(self.arguments)
        generator = None
        if self.generator_seed is not None:
            generator = torch.Generator().manual_seed(self.generator_seed)
        match self.order:
            case "shuffle":
                arguments["shuffle"] = True
            case "list":
                arguments["sampler"] = list(self.indices)
            case "subset":
                arguments["sampler"] = SubsetRandomSampler(self.indices, generator=generator)
            case "batches":
                arguments["batch_sampler"] = [
                    list(self.indices[start : start + 3])
                    for start in range(0, len(self.indices), 3)
                ]
            case "batch sampler":
                sampler = SequentialSampler(self.dataset)
                arguments["batch_sampler"] = BatchSampler(sampler, 3, drop_last=False)
        return loader_class(self.dataset, collate_fn=self.collate, generator=generator, **arguments)


@dataclass(frozen=True)
class Run:
    """What a program saw, and what it left of the caller's random numbers."""

    epochs: list[list[Event]]
    lengths: object
    generators_after: tuple[object, ...]


def run(loader_class: LoaderClass, program: Program) -> Run:
    """Run a program from the same random state each time."""
    torch.manual_seed(7)
    np.random.seed(7)
    random.seed(7)
    with warnings.catch_warnings(), bounded(PROGRAM_S):
        warnings.simplefilter("ignore")
        loader = program.loader(loader_class)
        length = _length(loader)
        epochs = watch(loader, program.epochs, see=lambda batch: describe(batch, DRAWN_KEYS))
    after: list[object] = [random.getstate(), torch.get_rng_state().tolist()]
    after.append(str(np.random.get_state()))
    if loader.generator is not None:
        after.append(loader.generator.get_state().tolist())
    return Run(epochs, length, tuple(after))


def _length(loader: torch.utils.data.DataLoader) -> object:
    try:
        return len(loader)
    except TypeError as error:
        return first_line(error)


# With streams that end at different times, torch's order depends on when it learns of an end: on a
# busy machine two runs of its own may differ. Ours must be one of them.
TORCH_AGAIN = 5


def runs_of(program: Program) -> tuple[Run, Run]:
    """Run a program through torch's loader, then through ours."""
    return run(LOADERS["torch"], program), run(LOADERS["antifreeze"], program)


def assert_same(program: Program) -> None:
    """Hold that both loaders show the caller the same, in the same order."""
    theirs, ours = runs_of(program)
    for _ in range(TORCH_AGAIN):
        if ours.epochs == theirs.epochs:
            break
        theirs = run(LOADERS["torch"], program)
    assert ours.epochs == theirs.epochs
    assert ours.lengths == theirs.lengths
    if getattr(program.dataset, "form", "") != "noise":
        # A dataset that draws is seeded by rules of its own; one that does not must leave
        # the caller's generators exactly where torch's loader leaves them.
        assert ours.generators_after == theirs.generators_after


def assert_all_same(programs: st.SearchStrategy[Program], examples: int) -> None:
    """Hold that for so many programs."""
    settings(max_examples=examples, **UNSHRUNK)(given(programs)(assert_same))()


def worker_arguments(draw: st.DrawFn, workers: st.SearchStrategy[int]) -> dict[str, Any]:
    """Draw the arguments that say how many workers there are and how they are kept busy."""
    arguments: dict[str, Any] = {"num_workers": draw(workers)}
    if arguments["num_workers"]:
        arguments["prefetch_factor"] = draw(st.sampled_from([None, 1, 2, 3]))
        arguments["persistent_workers"] = draw(st.booleans())
    return arguments


@st.composite
def map_programs(
    draw: st.DrawFn, workers: st.SearchStrategy[int], forms: tuple[str, ...], failing: bool = False
) -> Program:
    """Draw a program over a map-style dataset."""
    length = draw(st.integers(0, 17))
    rows = draw(st.sampled_from([MapRows, MapBatches]))
    positions = st.integers(0, max(0, length - 1))
    bad = draw(st.frozensets(positions, min_size=1, max_size=4)) if failing else frozenset()
    raises = draw(st.sampled_from(sorted(RAISED)))
    dataset = rows(length, draw(st.sampled_from(forms)), bad, raises)
    arguments = worker_arguments(draw, workers)
    orders = ["sequential", "list", "subset", "batches", "batch sampler"]
    # Shuffling nothing is refused by the constructor, and drawn there.
    order = draw(st.sampled_from([*orders, "shuffle"] if length else orders))
    indices = tuple(draw(st.lists(positions, max_size=12))) if length else ()
    if order not in ("batches", "batch sampler"):
        arguments["batch_size"] = draw(st.sampled_from([None, 1, 2, 3, 5, 20]))
        if arguments["batch_size"] is not None:
            arguments["drop_last"] = draw(st.booleans())
    collate = draw(st.sampled_from(["default", "list"]))
    if arguments.get("batch_size", 1) is not None:
        collate = draw(st.sampled_from(sorted(COLLATES)))
    return Program(
        dataset,
        arguments,
        order,
        indices,
        COLLATES[collate],
        generator_seed=draw(st.sampled_from([None, 0, 11])),
    )


@st.composite
def stream_programs(
    draw: st.DrawFn, workers: st.SearchStrategy[int], forms: tuple[str, ...], failing: bool = False
) -> Program:
    """Draw a program over an iterable dataset whose workers have streams of unequal lengths."""
    arguments = worker_arguments(draw, workers)
    count = max(1, arguments["num_workers"])
    lengths = draw(st.tuples(*[st.integers(0, 9)] * count))
    values = st.integers(0, count - 1).flatmap(
        lambda worker: st.integers(100 * worker, 100 * worker + 8)
    )
    bad = draw(st.frozensets(values, min_size=1, max_size=4)) if failing else frozenset()
    raises = draw(st.sampled_from(sorted(RAISED)))
    form = draw(st.sampled_from(forms))
    dataset = Streams(lengths, form, bad, raises, resumable=draw(st.booleans()))
    arguments["batch_size"] = draw(st.sampled_from([None, 1, 2, 3, 20]))
    if arguments["batch_size"] is not None:
        arguments["drop_last"] = draw(st.booleans())
    collate = draw(st.sampled_from(["default", "list"]))
    return Program(dataset, arguments, collate=COLLATES[collate], generator_seed=draw(seeds()))


def seeds() -> st.SearchStrategy[int | None]:
    """Draw the seed of the loader's own generator, or none for the global one."""
    return st.sampled_from([None, 0, 11])


NONE = st.just(0)
SOME = st.integers(1, 4)


@QUICK
@given(map_programs(NONE, SURE_FORMS))
def test_map_programs_without_workers_see_the_same_batches(program: Program) -> None:
    assert_same(program)


@WITH_WORKERS
def test_map_programs_with_workers_see_the_same_batches(examples: int) -> None:
    assert_all_same(map_programs(SOME, SURE_FORMS), examples)


@QUICK
@given(stream_programs(NONE, SURE_FORMS))
def test_iterable_programs_without_workers_see_the_same_batches(program: Program) -> None:
    assert_same(program)


@WITH_WORKERS
def test_iterable_programs_with_unequal_streams_see_the_same_order(examples: int) -> None:
    assert_all_same(stream_programs(SOME, SURE_FORMS), examples)


@QUICK
@given(st.one_of(map_programs(NONE, ("noise",)), stream_programs(NONE, ("noise",))))
def test_programs_that_draw_see_the_same_indices_shapes_and_types(program: Program) -> None:
    # Without a generator the order of a second epoch depends, in torch, on what samples drew.
    ordered = program.order == "sequential" or program.generator_seed is not None
    assume(ordered or program.epochs == 1)
    assert_same(program)


@FEW
def test_programs_that_draw_in_workers_see_the_same_indices_shapes_and_types(examples: int) -> None:
    assert_all_same(
        st.one_of(map_programs(SOME, ("noise",)), stream_programs(SOME, ("noise",))), examples
    )


@QUICK
@given(map_programs(NONE, ("int", "dict"), failing=True))
def test_failing_map_programs_without_workers_see_the_same_errors_and_go_on(
    program: Program,
) -> None:
    assert_same(program)


@WITH_WORKERS
def test_failing_map_programs_with_workers_see_the_same_errors_and_go_on(examples: int) -> None:
    assert_all_same(map_programs(SOME, ("int", "dict"), failing=True), examples)


@QUICK
@given(stream_programs(NONE, ("int", "tensor"), failing=True))
def test_failing_iterable_programs_without_workers_see_the_same_errors_and_go_on(
    program: Program,
) -> None:
    assert_same(program)


@WITH_WORKERS
def test_failing_iterable_programs_with_workers_see_the_same_errors_and_go_on(
    examples: int,
) -> None:
    assert_all_same(stream_programs(SOME, ("int", "tensor"), failing=True), examples)


@FEW
def test_a_collate_that_raises_costs_its_batch_and_nothing_else(examples: int) -> None:
    def program(workers: int, bad: int, batch_size: int) -> Program:
        arguments = {"num_workers": workers, "batch_size": batch_size}
        return Program(MapRows(9), arguments, collate=FailingCollate(bad))

    sizes = st.sampled_from([1, 2, 3])
    programs = st.builds(program, st.integers(0, 2), st.integers(0, 9), sizes)
    assert_all_same(programs, examples)


@FEW
def test_out_of_order_programs_see_the_same_batches_in_any_order(examples: int) -> None:
    @settings(max_examples=examples, **UNSHRUNK)
    @given(
        st.one_of(
            map_programs(st.integers(1, 3), ("int", "dict")),
            map_programs(st.integers(1, 3), ("int",), failing=True),
            stream_programs(st.integers(1, 3), ("int", "tensor")),
        )
    )
    def check(program: Program) -> None:
        program.arguments["in_order"] = False
        theirs, ours = runs_of(program)
        for epoch in range(program.epochs):
            assert _bag(ours.epochs[epoch]) == _bag(theirs.epochs[epoch])

    check()


def _bag(events: list[Event]) -> Counter[str]:
    return Counter(repr(event) for event in without_worker_numbers(events))


@FEW
def test_a_loop_left_early_and_begun_again_sees_the_same(examples: int) -> None:
    def leave_early(loader_class: LoaderClass, program: Program, taken: int) -> list[Event]:
        torch.manual_seed(7)
        loader = program.loader(loader_class)
        seen: list[Event] = []
        for _ in range(2):
            for count, batch in enumerate(loader, start=1):
                seen.append(Batch(describe(batch)))
                if count == taken:
                    break
        return seen + watch(loader)[0]

    @settings(max_examples=examples, **UNSHRUNK)
    @given(map_programs(SOME, SURE_FORMS), st.integers(1, 3))
    def check(program: Program, taken: int) -> None:
        ours = leave_early(LOADERS["antifreeze"], program, taken)
        assert ours == leave_early(LOADERS["torch"], program, taken)

    check()


# Wrong and right values of every argument, mixed at random: which of several complaints comes
# first is torch's choice, and scripts that match on it exist.
ARGUMENTS: dict[str, list[Any]] = {
    "batch_size": [1, 4, None, 0, -3, 2.5, "8", True, np.int64(4)],
    "shuffle": [None, False, True],
    "sampler": [None, [0, 1]],
    "batch_sampler": [None, [[0], [1]]],
    "num_workers": [0, 1, 3, -1, np.int64(2), True],
    "drop_last": [False, True, "yes", None],
    "timeout": [0, 5, -1, 0.5],
    "multiprocessing_context": [None, "fork", "spawn", "spork", 5],
    "prefetch_factor": [None, 1, 4, -2],
    "persistent_workers": [False, True],
    "collate_fn": [None, len],
    "in_order": [True, False],
    "pin_memory": [False, True],
}


@st.composite
def argument_sets(draw: st.DrawFn) -> dict[str, Any]:
    """Draw a value for a few of the arguments."""
    names = draw(st.lists(st.sampled_from(sorted(ARGUMENTS)), unique=True, max_size=5))
    return {name: draw(st.sampled_from(ARGUMENTS[name])) for name in names}


def _constructed(loader_class: LoaderClass, dataset: Any, arguments: dict[str, Any]) -> Any:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            loader = loader_class(dataset, **arguments)
        except Exception as error:
            return type(error), first_line(error)
    public = {name: value for name, value in vars(loader).items() if not name.startswith("_")}
    for beyond in NAMES:
        public.pop(beyond, None)
    return {
        name: type(value) if name in ("sampler", "batch_sampler") else value
        for name, value in public.items()
    }


@settings(max_examples=400, **SETTINGS)
@given(st.sampled_from([MapRows(6), MapRows(0), Streams((4,))]), argument_sets())
def test_constructors_take_and_refuse_the_same_arguments(
    dataset: Any, arguments: dict[str, Any]
) -> None:
    theirs = _constructed(LOADERS["torch"], dataset, arguments)
    mine = _constructed(LOADERS["antifreeze"], dataset, arguments)
    if isinstance(theirs, dict) and arguments.get("timeout") and not theirs["num_workers"]:
        # torch takes a timeout without workers and asserts in the first loop; ours refuses at once.
        assert mine == theirs or mine[0] is AssertionError
    else:
        assert mine == theirs
