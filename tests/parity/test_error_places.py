"""Every place that can raise, and what the loop gets before and after it."""

import bdb
import re
import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import pytest
import torch
from torch.utils.data import IterableDataset, get_worker_info

from .observe import (
    Batch,
    End,
    Error,
    LoaderClass,
    assert_names,
    describe,
    error_of,
    first_line,
    notes,
    watch,
    whole_text,
)
from .programs import MapRows, OneString, Throws, as_list, thrower

# --- StopIteration is an error, not the end (ours only: to torch's loop it is the end) ---------


@pytest.mark.parametrize("workers", [0, 2])
@pytest.mark.parametrize("batch_size", [2, None])
def test_stop_iteration_from_a_sample_is_an_error_and_the_epoch_goes_on(
    workers: int, batch_size: int | None, ours: LoaderClass
) -> None:
    dataset = Throws(thrower(StopIteration("a bare next() in the dataset")))
    loader = ours(dataset, batch_size=batch_size, num_workers=workers, collate_fn=as_list)
    events = watch(loader)[0]
    errors = [event for event in events if isinstance(event, Error)]
    assert [error.kind for error in errors] == [RuntimeError]
    assert sum(isinstance(event, Batch) for event in events) == (3 if batch_size else 7)
    error = error_of(loader)
    assert type(error) is RuntimeError
    assert "StopIteration" in whole_text(error)
    assert re.search(r"\b3\b", whole_text(error))


@pytest.mark.parametrize("workers", [0, 2])
def test_stop_iteration_from_collate_is_an_error(workers: int, ours: LoaderClass) -> None:
    loader = ours(MapRows(6), batch_size=2, num_workers=workers, collate_fn=collate_that_stops)
    events = watch(loader)[0]
    assert [type(event) for event in events] == [Batch, Error, Batch, End]
    assert "StopIteration" in whole_text(error_of(loader))


def collate_that_stops(samples: list[int]) -> list[int]:
    """Let a bare `next()` loose on an exhausted iterator, once."""
    if 2 in samples:
        next(iter([]))
    return samples


# --- every place that can raise ----------------------------------------------------------------


def bad_collate(samples: list[int]) -> list[int]:
    """Refuse the batch of sample 2."""
    if 2 in samples:
        raise OneString("cannot collate")
    return samples


def bad_init(worker: int) -> None:
    """Refuse to begin in worker 0."""
    if worker == 0:
        raise OneString("cannot begin")


@dataclass
class BadIter(IterableDataset):
    """An iterable dataset that cannot be iterated."""

    def __iter__(self) -> Iterator[int]:
        raise OneString("cannot iterate")


@dataclass
class BadMiddle(IterableDataset):
    """A generator that breaks after some values; worker 1 is healthy."""

    before: int = 5

    def __iter__(self) -> Iterator[int]:
        info = get_worker_info()
        start = 0 if info is None else 100 * info.id
        for number in range(start, start + 8):
            if number == self.before:
                raise OneString("the stream broke")
            yield number


class BadGetitems(MapRows):
    """A dataset whose many-at-a-time method raises."""

    def __getitems__(self, indices: list[int]) -> list[int]:
        if 2 in indices:
            raise OneString("cannot fetch many")
        return indices


PLACES: dict[str, dict[str, Any]] = {
    "collate": {"dataset": MapRows(6), "collate_fn": bad_collate},
    "getitems": {"dataset": BadGetitems(6), "collate_fn": as_list},
    "iter": {"dataset": BadIter(), "collate_fn": as_list},
    "generator": {"dataset": BadMiddle(), "collate_fn": as_list},
}


@pytest.mark.parametrize("place", sorted(PLACES))
@pytest.mark.parametrize("workers", [0, 1])
def test_an_exception_of_any_place_has_its_own_type_and_torchs_first_line(
    place: str, workers: int, loader_class: LoaderClass
) -> None:
    error = error_of(loader_class(**PLACES[place], batch_size=2, num_workers=workers))
    assert type(error) is OneString
    if workers:
        assert first_line(error) == "Caught OneString in DataLoader worker process 0."
    else:
        assert "Caught" not in whole_text(error)


@pytest.mark.parametrize("place", ["collate", "getitems"])
def test_an_exception_of_a_whole_batch_names_its_indices(place: str, ours: LoaderClass) -> None:
    error = error_of(ours(**PLACES[place], batch_size=2, num_workers=2))
    assert_names(error, index=2, worker=1)
    assert_names(error, index=3, worker=1)


@pytest.mark.parametrize("kind", ["map", "iterable"])
def test_an_exception_of_worker_init_fn_comes_with_the_first_batch(
    kind: str, loader_class: LoaderClass
) -> None:
    dataset = MapRows(6) if kind == "map" else BadMiddle(before=-1)
    loader = loader_class(dataset, batch_size=2, num_workers=2, worker_init_fn=bad_init)
    seen: list[Any] = []
    error = error_of(seen.append(batch) for batch in loader)
    assert type(error) is OneString
    assert first_line(error) == "Caught OneString in DataLoader worker process 0."
    assert "cannot begin" in str(error)
    assert not seen


def test_an_exception_of_worker_init_fn_names_the_worker(ours: LoaderClass) -> None:
    error = error_of(ours(MapRows(6), batch_size=2, num_workers=2, worker_init_fn=bad_init))
    assert re.search(r"worker\D*0\b", notes(error), re.IGNORECASE)


@pytest.mark.filterwarnings("ignore:antifreeze. the stream of worker 0 ended")
def test_a_broken_generator_ends_its_own_stream_only(loader_class: LoaderClass) -> None:
    loader = loader_class(BadMiddle(), batch_size=2, num_workers=2, collate_fn=as_list)
    events = watch(loader)[0]
    broken = Error(OneString, "Caught OneString in DataLoader worker process 0.")
    pairs = [[0, 1], [100, 101], [2, 3], [102, 103], broken, [104, 105], [106, 107]]
    expected = [each if isinstance(each, Error) else Batch(describe(each)) for each in pairs]
    assert events == [*expected, End()]


@pytest.mark.parametrize("place", ["sample", "init"])
def test_a_debugger_in_a_worker_is_told_to_have_no_terminal(place: str, ours: LoaderClass) -> None:
    dataset: Any = Throws(quit_debugger) if place == "sample" else MapRows(6)
    init = None if place == "sample" else quit_debugger
    error = error_of(ours(dataset, batch_size=2, num_workers=1, worker_init_fn=init))
    assert type(error) is bdb.BdbQuit
    assert "has no terminal" in notes(error)
    assert "num_workers=0" in notes(error)


def quit_debugger(*_: Any) -> Any:
    """Do as pdb does where there is nothing to read from."""
    raise bdb.BdbQuit


# --- samplers ----------------------------------------------------------------------------------


@dataclass
class BadSampler:
    """A sampler that breaks after some indices."""

    good: int

    def __len__(self) -> int:
        return 50

    def __iter__(self) -> Iterator[int]:
        yield from range(self.good)
        raise OneString("no more indices")


@dataclass
class BadBatchSampler:
    """A batch sampler that breaks after some batches."""

    good: int

    def __len__(self) -> int:
        return 50

    def __iter__(self) -> Iterator[list[int]]:
        for start in range(0, 2 * self.good, 2):
            yield [start, start + 1]
        raise OneString("no more batches")


SAMPLERS: dict[str, Callable[[int], dict[str, Any]]] = {
    "sampler": lambda good: {"sampler": BadSampler(2 * good + 1), "batch_size": 2},
    "batch_sampler": lambda good: {"batch_sampler": BadBatchSampler(good)},
}


def sampler_events(loader_class: LoaderClass, kind: str, good: int, **arguments: Any) -> list[Any]:
    """Run over a sampler that breaks after some good batches."""
    loader = loader_class(MapRows(50), collate_fn=as_list, **SAMPLERS[kind](good), **arguments)
    return watch(loader, see=as_list)[0]


@pytest.mark.parametrize("kind", sorted(SAMPLERS))
@pytest.mark.parametrize("good", [0, 1, 4])
def test_a_samplers_exception_comes_after_the_batches_drawn_before_it(
    kind: str, good: int, loader_class: LoaderClass
) -> None:
    events = sampler_events(loader_class, kind, good)
    assert events[:good] == [Batch([2 * number, 2 * number + 1]) for number in range(good)]
    assert isinstance(events[good], Error)
    assert events[good].kind is OneString
    assert events[good].first_line.startswith("no more")
    assert events[good + 1 :] == [End()]


@pytest.mark.parametrize("kind", sorted(SAMPLERS))
@pytest.mark.parametrize("good", [0, 1, 3, 4, 9])
@pytest.mark.parametrize("in_order", [True, False])
def test_with_workers_a_samplers_exception_costs_no_batch_drawn_before_it(
    kind: str, good: int, in_order: bool, ours: LoaderClass
) -> None:
    # Ours only: torch draws ahead, and loses what it holds when the sampler raises.
    events = sampler_events(ours, kind, good, num_workers=2, in_order=in_order)
    batches = [event.seen for event in events[:good]]
    assert sorted(batches) == [[2 * number, 2 * number + 1] for number in range(good)]
    assert isinstance(events[good], Error)
    assert (events[good].kind, events[good].first_line[:7]) == (OneString, "no more")
    assert events[good + 1 :] == [End()]


def test_a_samplers_own_exception_object_is_raised(ours: LoaderClass) -> None:
    error = error_of(ours(MapRows(9), sampler=BadSampler(3), num_workers=1))
    assert type(error) is OneString
    assert str(error) == "no more indices"


@pytest.mark.parametrize("workers", [0, 2])
def test_a_sampler_that_gives_an_index_out_of_range_is_the_datasets_error(
    workers: int, loader_class: LoaderClass
) -> None:
    loader = loader_class([10, 20], sampler=[0, 5, 1], num_workers=workers, collate_fn=as_list)
    events = watch(loader, see=as_list)[0]
    assert [type(event) for event in events] == [Batch, Error, Batch, End]
    assert events[1].kind is IndexError


# --- nothing is lost ---------------------------------------------------------------------------


@pytest.mark.parametrize("workers", [0, 1, 3])
def test_batches_around_an_error_are_all_delivered(workers: int, loader_class: LoaderClass) -> None:
    dataset = MapRows(20, bad=frozenset({5, 6, 13}))
    loader = loader_class(dataset, batch_size=2, num_workers=workers, collate_fn=as_list)
    events = watch(loader, see=as_list)[0]
    expected: list[Any] = [[2 * number, 2 * number + 1] for number in range(10)]
    seen = [event.seen if isinstance(event, Batch) else event.kind for event in events[:-1]]
    for bad in (2, 3, 6):
        expected[bad] = ValueError
    assert seen == expected


def test_batches_loaded_before_an_error_are_delivered_before_it(
    loader_class: LoaderClass,
) -> None:
    # The bad sample is ready long before the slow one in front of it.
    loader = loader_class(SlowFirst(4), batch_size=1, num_workers=2, collate_fn=as_list)
    events = watch(loader, see=as_list)[0]
    assert events[0] == Batch([0])
    assert isinstance(events[1], Error)
    assert events[2:] == [Batch([2]), Batch([3]), End()]


@dataclass
class SlowFirst:
    """Sample 0 takes its time, sample 1 is bad at once."""

    length: int

    def __len__(self) -> int:
        return self.length

    def __getitem__(self, index: int) -> int:
        if index == 0:
            threading.Event().wait(0.3)
        if index == 1:
            raise ValueError("bad at once")
        return index


@pytest.mark.parametrize("workers", [1, 2])
def test_every_batch_may_fail_and_the_epoch_still_ends(
    workers: int, loader_class: LoaderClass
) -> None:
    dataset = MapRows(9, bad=frozenset(range(9)))
    events = watch(loader_class(dataset, batch_size=2, num_workers=workers))[0]
    assert [type(event) for event in events] == [Error] * 5 + [End]


@pytest.mark.parametrize("workers", [0, 2])
def test_samples_that_do_not_stack_are_a_runtime_error(
    workers: int, loader_class: LoaderClass
) -> None:
    loader = loader_class(Ragged(6), batch_size=2, num_workers=workers)
    events = watch(loader)[0]
    assert [type(event) for event in events] == [Batch, Error, Batch, End]
    assert events[1].kind is RuntimeError


@dataclass
class Ragged:
    """One sample is shorter than its neighbours."""

    length: int

    def __len__(self) -> int:
        return self.length

    def __getitem__(self, index: int) -> torch.Tensor:
        return torch.ones(2 if index == 3 else 5)


@pytest.mark.parametrize("workers", [0, 2])
def test_samples_that_default_collate_does_not_know_are_a_type_error(
    workers: int, loader_class: LoaderClass
) -> None:
    error = error_of(loader_class([None, None], batch_size=2, num_workers=workers))
    assert type(error) is TypeError
    assert "default_collate: batch must contain tensors" in str(error)
