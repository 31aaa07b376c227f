"""Iterating: many loops, many epochs, threads, order, timeout, pinned memory."""

import gc
import multiprocessing
import os
import re
import sys
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

import pytest
import torch
from torch.utils.data import DistributedSampler

from tests.torch_versions import IGNORES_PIN_MEMORY_DEVICE, WARNS_WITHOUT_ACCELERATOR

from .observe import (
    LOADERS,
    LoaderClass,
    caught_warnings,
    error_of,
    first_line,
    wait_until,
    whole_text,
)
from .programs import PAIRS, MapRows, SlowAt, as_list, pairs

WORKERS = pytest.mark.parametrize("workers", [0, 2])


def in_thread(program: Callable[[], Any]) -> Any:
    """Run a program in a thread of its own; give its result or raise its exception."""
    answers: list[Any] = []

    def run() -> None:
        try:
            answers.append(program())
        except BaseException as error:
            answers.append(error)

    thread = threading.Thread(target=run)
    thread.start()
    thread.join(60)
    assert answers, "the thread has not ended"
    if isinstance(answers[0], BaseException):
        raise answers[0]
    return answers[0]


# --- loops -------------------------------------------------------------------------------------


@WORKERS
def test_epoch_after_epoch_gives_the_same(workers: int, loader_class: LoaderClass) -> None:
    loader = pairs(loader_class, workers)
    for _ in range(3):
        assert list(loader) == PAIRS


@WORKERS
def test_several_iterators_of_one_loader_live_side_by_side(
    workers: int, loader_class: LoaderClass
) -> None:
    loader = pairs(loader_class, workers)
    first, second = iter(loader), iter(loader)
    assert first is not second
    assert next(first) == PAIRS[0]
    third = iter(loader)
    assert [each for both in zip(first, second, strict=False) for each in both] == [
        PAIRS[1],
        PAIRS[0],
        PAIRS[2],
        PAIRS[1],
        PAIRS[3],
        PAIRS[2],
        PAIRS[4],
        PAIRS[3],
    ]
    del second
    assert list(third) == PAIRS


@WORKERS
def test_loops_may_be_nested(workers: int, loader_class: LoaderClass) -> None:
    loader = pairs(loader_class, workers)
    assert [list(loader) for _ in loader] == [PAIRS] * 5


@WORKERS
def test_an_early_break_leaves_nothing_and_the_next_loop_begins_anew(
    workers: int, loader_class: LoaderClass, no_new_children: Callable[[], None]
) -> None:
    loader = pairs(loader_class, workers)
    for batch in loader:
        assert batch == PAIRS[0]
        break
    no_new_children()
    assert list(loader) == PAIRS
    no_new_children()


@WORKERS
def test_an_exception_in_the_loops_body_leaves_nothing(
    workers: int, loader_class: LoaderClass, no_new_children: Callable[[], None]
) -> None:
    loader = pairs(loader_class, workers)

    def train() -> None:
        for batch in loader:
            if batch == PAIRS[1]:
                raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError) as caught:
        train()
    del caught
    gc.collect()
    no_new_children()
    assert list(loader) == PAIRS


def test_dropping_the_iterator_ends_its_workers(
    loader_class: LoaderClass, no_new_children: Callable[[], None]
) -> None:
    iterator = iter(pairs(loader_class, 2))
    next(iterator)
    workers = list(iterator._workers)
    assert all(worker.is_alive() for worker in workers)
    del iterator
    assert wait_until(lambda: not any(worker.is_alive() for worker in workers), within_s=30)
    no_new_children()


def test_the_end_of_an_epoch_ends_its_workers(
    loader_class: LoaderClass, no_new_children: Callable[[], None]
) -> None:
    iterator = iter(pairs(loader_class, 2))
    assert list(iterator) == PAIRS
    no_new_children()
    assert list(iterator) == []


@WORKERS
def test_a_loader_may_be_iterated_in_another_thread(
    workers: int, loader_class: LoaderClass
) -> None:
    loader = pairs(loader_class, workers)
    assert in_thread(lambda: list(loader)) == PAIRS
    assert list(loader) == PAIRS


@WORKERS
def test_an_iterator_may_move_to_another_thread_and_back(
    workers: int, loader_class: LoaderClass
) -> None:
    iterator = iter(pairs(loader_class, workers))
    assert next(iterator) == PAIRS[0]
    assert in_thread(lambda: next(iterator)) == PAIRS[1]
    assert next(iterator) == PAIRS[2]
    assert in_thread(lambda: list(iterator)) == PAIRS[3:]


@WORKERS
def test_an_iterator_outlives_the_thread_that_made_it(
    workers: int, loader_class: LoaderClass
) -> None:
    # A parent-death signal follows the thread that forked, not its process.
    iterator = in_thread(lambda: iter(pairs(loader_class, workers)))
    assert list(iterator) == PAIRS


@WORKERS
def test_threads_may_iterate_one_loader_at_the_same_time(
    workers: int, loader_class: LoaderClass
) -> None:
    loader = pairs(loader_class, workers)
    answers: list[Any] = []
    threads = [threading.Thread(target=lambda: answers.append(list(loader))) for _ in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    assert answers == [PAIRS] * 3


@WORKERS
def test_an_empty_dataset_is_an_empty_loop(workers: int, loader_class: LoaderClass) -> None:
    assert list(loader_class(MapRows(0), num_workers=workers)) == []


@WORKERS
def test_an_index_may_be_anything_the_dataset_takes(
    workers: int, loader_class: LoaderClass
) -> None:
    dataset = {"a": 1, ("t", 2): 2, 7: 3}
    loader = loader_class(
        dataset, sampler=[7, "a", ("t", 2)], batch_size=2, num_workers=workers, collate_fn=as_list
    )
    assert list(loader) == [[3, 1], [2]]
    tensors = loader_class(
        [10, 20, 30], sampler=torch.tensor([2, 0]), num_workers=workers, collate_fn=as_list
    )
    assert list(tensors) == [[30], [10]]


@WORKERS
def test_a_batch_may_be_empty(workers: int, loader_class: LoaderClass) -> None:
    loader = loader_class(
        [10, 20], batch_sampler=[[], [0, 1], []], num_workers=workers, collate_fn=as_list
    )
    assert list(loader) == [[], [10, 20], []]


@WORKERS
def test_functions_without_a_name_may_be_arguments(workers: int, loader_class: LoaderClass) -> None:
    loader = loader_class(
        MapRows(3),
        batch_size=3,
        num_workers=workers,
        collate_fn=lambda samples: [-sample for sample in samples],
        worker_init_fn=lambda worker: None,
    )
    assert list(loader) == [[0, -1, -2]]


@WORKERS
def test_a_dataset_may_say_that_it_has_no_many_at_a_time_method(
    workers: int, loader_class: LoaderClass
) -> None:
    class Plain(MapRows):
        __getitems__ = None

    loader = loader_class(Plain(2), batch_size=2, num_workers=workers, collate_fn=as_list)
    assert list(loader) == [[0, 1]]


def test_more_workers_than_batches_is_fine(loader_class: LoaderClass) -> None:
    loader = loader_class(MapRows(2), num_workers=4, collate_fn=as_list)
    assert list(loader) == [[0], [1]]


@WORKERS
def test_the_dataset_of_a_new_epoch_is_the_datasets_present_state(
    workers: int, loader_class: LoaderClass
) -> None:
    dataset = [1, 2, 3]
    loader = loader_class(dataset, num_workers=workers, collate_fn=as_list)
    assert list(loader) == [[1], [2], [3]]
    dataset[1] = 20
    assert list(loader) == [[1], [20], [3]]


@WORKERS
def test_the_batch_size_may_be_changed_in_the_batch_sampler_between_epochs(
    workers: int, loader_class: LoaderClass
) -> None:
    loader = pairs(loader_class, workers)
    assert list(loader) == PAIRS
    loader.batch_sampler.batch_size = 5
    assert list(loader) == [[0, 1, 2, 3, 4], [5, 6, 7, 8, 9]]


@WORKERS
def test_the_epoch_set_on_a_distributed_sampler_is_used(
    workers: int, loader_class: LoaderClass
) -> None:
    def epochs(which: LoaderClass) -> list[Any]:
        sampler = DistributedSampler(MapRows(9), num_replicas=2, rank=0)
        loader = which(MapRows(9), sampler=sampler, num_workers=workers, collate_fn=as_list)
        seen = []
        for epoch in range(3):
            sampler.set_epoch(epoch)
            seen.append(list(loader))
        return seen

    assert epochs(loader_class) == epochs(LOADERS["torch"])


# --- order -------------------------------------------------------------------------------------


def test_a_slow_batch_keeps_its_place(loader_class: LoaderClass) -> None:
    loader = loader_class(SlowAt(0, 0.4), batch_size=2, num_workers=2, collate_fn=as_list)
    assert list(loader) == PAIRS[:4]


def test_out_of_order_a_ready_batch_overtakes_a_slow_one(loader_class: LoaderClass) -> None:
    loader = loader_class(
        SlowAt(0, 2), batch_size=2, num_workers=2, collate_fn=as_list, in_order=False
    )
    seen = list(loader)
    assert seen[0] != PAIRS[0]
    assert sorted(seen) == PAIRS[:4]


@dataclass
class Noting:
    """A sampler that notes who asks it, and how often."""

    length: int
    asked_by: set[tuple[int, int]] = field(default_factory=set)
    given: list[int] = field(default_factory=list)

    def __len__(self) -> int:
        return self.length

    def __iter__(self) -> Iterator[int]:
        for index in range(self.length):
            self.asked_by.add((os.getpid(), threading.get_ident()))
            self.given.append(index)
            yield index


@WORKERS
def test_a_sampler_is_asked_in_order_by_the_main_process(
    workers: int, loader_class: LoaderClass
) -> None:
    sampler = Noting(20)
    loader = loader_class(MapRows(20), sampler=sampler, num_workers=workers, collate_fn=as_list)
    for number, batch in enumerate(loader):
        assert batch == [number]
        # What has come was asked for; what was asked for is in order.
        assert sampler.given == list(range(len(sampler.given)))
        assert len(sampler.given) > number
    assert sampler.given == list(range(20))
    # A generator sampler may hold a database handle or a lock of the thread that iterates.
    assert sampler.asked_by == {(os.getpid(), threading.get_ident())}


@pytest.mark.parametrize("factor", [1, 3, 4])
def test_a_sampler_is_asked_no_further_ahead_than_prefetch_factor_allows(
    factor: int, loader_class: LoaderClass
) -> None:
    # Ours takes the default factor, 2, more freely: see test_tiny_batches.
    sampler = Noting(40)
    loader = loader_class(MapRows(40), sampler=sampler, num_workers=2, prefetch_factor=factor)
    iterator = iter(loader)
    assert len(sampler.given) <= 2 * factor
    for taken in range(1, 10):
        next(iterator)
        assert taken <= len(sampler.given) <= taken + 2 * factor


def test_without_workers_a_sampler_is_asked_when_the_loop_asks(loader_class: LoaderClass) -> None:
    sampler = Noting(10)
    iterator = iter(loader_class(MapRows(10), sampler=sampler))
    for taken in range(1, 5):
        next(iterator)
        assert len(sampler.given) == taken


class Counted:
    """A dataset that counts, for all processes, how many samples were loaded."""

    def __init__(self, length: int) -> None:
        self.length = length
        self.loaded = multiprocessing.get_context("fork").Value("i", 0)

    def __len__(self) -> int:
        return self.length

    def __getitem__(self, index: int) -> int:
        with self.loaded.get_lock():
            self.loaded.value += 1
        return index


@pytest.mark.parametrize("factor", [1, 3])
def test_workers_begin_at_once_and_run_ahead_as_far_as_prefetch_factor_allows(
    factor: int, loader_class: LoaderClass
) -> None:
    dataset = Counted(60)
    iterator = iter(loader_class(dataset, num_workers=2, prefetch_factor=factor))
    assert wait_until(lambda: dataset.loaded.value == 2 * factor, within_s=30)
    next(iterator)
    assert wait_until(lambda: dataset.loaded.value == 2 * factor + 1, within_s=30)
    # Absence can only be watched for a while.
    assert not wait_until(lambda: dataset.loaded.value > 2 * factor + 1, within_s=0.3)


# --- timeout -----------------------------------------------------------------------------------


@pytest.mark.parametrize("timeout", [1, 0.5])
def test_a_sample_later_than_the_timeout_is_torchs_error(
    timeout: float, loader_class: LoaderClass, no_new_children: Callable[[], None]
) -> None:
    loader = loader_class(SlowAt(2, 300), num_workers=1, timeout=timeout, collate_fn=as_list)
    iterator = iter(loader)
    assert [next(iterator), next(iterator)] == [[0], [1]]
    started = time.monotonic()
    error = error_of(iterator)
    assert time.monotonic() - started < 5 * 5
    assert type(error) is RuntimeError or issubclass(type(error), RuntimeError)
    assert first_line(error).startswith(f"DataLoader timed out after {timeout} seconds")
    del iterator, loader, error
    no_new_children()


def test_after_a_timeout_the_loader_is_dropped_quickly(
    ours: LoaderClass, no_new_children: Callable[[], None]
) -> None:
    # Ours only: torch waits five seconds for each worker that is still busy.
    loader = ours(SlowAt(0, 300), num_workers=2, timeout=1)
    iterator = iter(loader)
    error = error_of(iterator)
    assert first_line(error).startswith("DataLoader timed out after 1 seconds")
    assert re.search(r"\b0\b", whole_text(error))
    started = time.monotonic()
    del iterator, loader, error
    no_new_children()
    assert time.monotonic() - started < 5


def test_a_timeout_that_is_never_reached_changes_nothing(loader_class: LoaderClass) -> None:
    assert list(pairs(loader_class, 2, timeout=100)) == PAIRS


# --- pinned memory -----------------------------------------------------------------------------


WITHOUT_ACCELERATOR = pytest.mark.skipif(
    torch.accelerator.is_available(), reason="there is an accelerator to pin for"
)


def pinning(which: LoaderClass, workers: int, device: str) -> Any:
    rows = MapRows(4, "dict")
    return which(rows, num_workers=workers, pin_memory=True, pin_memory_device=device)


@WITHOUT_ACCELERATOR
@WORKERS
@pytest.mark.parametrize("device", ["", "cuda"] if IGNORES_PIN_MEMORY_DEVICE else [""])
def test_pinning_without_an_accelerator_is_torchs_warning_and_plain_batches(
    workers: int, device: str, loader_class: LoaderClass
) -> None:
    def program(which: LoaderClass) -> None:
        batches = list(pinning(which, workers, device))
        assert len(batches) == 4
        assert not batches[0]["row"].is_pinned()

    theirs = caught_warnings(lambda: program(LOADERS["torch"]))
    warned = any("no accelerator is found" in text for _, text in theirs)
    assert warned == WARNS_WITHOUT_ACCELERATOR
    assert caught_warnings(lambda: program(loader_class)) == theirs


@WITHOUT_ACCELERATOR
@WORKERS
@pytest.mark.skipif(IGNORES_PIN_MEMORY_DEVICE, reason="torch pins for the current accelerator")
def test_pinning_for_a_device_that_is_not_there_is_torchs_error(
    workers: int, loader_class: LoaderClass, monkeypatch: pytest.MonkeyPatch
) -> None:
    complaints: list[object] = []
    monkeypatch.setattr(sys, "unraisablehook", complaints.append)
    assert type(error_of(pinning(loader_class, workers, "cuda"))) is RuntimeError
    gc.collect()
    # Ours only: torch's half-made iterator complains again when it is dropped.
    assert loader_class is LOADERS["torch"] or not complaints
