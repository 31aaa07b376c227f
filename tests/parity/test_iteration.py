"""Iterating: many loops, many epochs, workers from inside and outside, every way to stop."""

import gc
import multiprocessing
import os
import pickle
import random
import re
import signal
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import FrozenInstanceError, dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch.utils.data import DistributedSampler, IterableDataset, get_worker_info
from torch.utils.data.datapipes.iter import IterableWrapper
from torch.utils.data.datapipes.map import SequenceWrapper

from .observe import (
    LOADERS,
    LoaderClass,
    caught_warnings,
    describe,
    error_of,
    first_line,
    wait_until,
    watch,
    whole_text,
)
from .programs import MapRows, Streams, as_list
from .scripts import run_script, start_script

WORKERS = pytest.mark.parametrize("workers", [0, 2])

PAIRS = [[0, 1], [2, 3], [4, 5], [6, 7], [8, 9]]


def pairs(loader_class: LoaderClass, workers: int, **arguments: Any) -> Any:
    """Make a loader of five pairs of numbers."""
    return loader_class(
        MapRows(10), batch_size=2, num_workers=workers, collate_fn=as_list, **arguments
    )


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


@dataclass
class SlowAt:
    """A dataset one of whose samples takes its time."""

    slow: int
    seconds: float
    length: int = 8

    def __len__(self) -> int:
        return self.length

    def __getitem__(self, index: int) -> int:
        if index == self.slow:
            time.sleep(self.seconds)
        return index


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


@pytest.mark.parametrize("factor", [1, 2, 4])
def test_a_sampler_is_asked_no_further_ahead_than_prefetch_factor_allows(
    factor: int, loader_class: LoaderClass
) -> None:
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


# --- seen from inside a worker -----------------------------------------------------------------


class Introspective:
    """A dataset that tells where its samples are loaded."""

    def __len__(self) -> int:
        return 8

    def __getitem__(self, index: int) -> dict[str, Any]:
        info = get_worker_info()
        if info is None:
            return {"index": index, "worker": None}
        return {
            "index": index,
            "worker": info.id,
            "of": info.num_workers,
            "seed": info.seed,
            "own": info.dataset is self,
            "torch": torch.initial_seed(),
            "draws": [random.random(), float(np.random.rand()), torch.rand(()).item()],
            "marked": getattr(self, "marked", None),
            "daemon": multiprocessing.current_process().daemon,
            "threads": torch.get_num_threads(),
            "pid": os.getpid(),
        }


def mark(worker: int) -> None:
    """Leave a mark on the worker's copy of the dataset, as sharding code does."""
    info = get_worker_info()
    assert info is not None
    assert info.id == worker
    info.dataset.marked = ("worker", worker, random.random())


def tell(loader_class: LoaderClass, workers: int, **arguments: Any) -> list[dict[str, Any]]:
    """Let the introspective dataset tell, from a generator with a fixed seed."""
    generator = torch.Generator().manual_seed(1234)
    loader = loader_class(
        Introspective(),
        batch_size=None,
        num_workers=workers,
        generator=generator,
        worker_init_fn=mark,
        collate_fn=as_list,
        **arguments,
    )
    return list(loader)


@pytest.mark.parametrize("workers", [1, 2, 3])
def test_worker_info_seeds_and_draws_are_torchs_for_the_same_generator(
    workers: int, loader_class: LoaderClass
) -> None:
    theirs, mine = tell(LOADERS["torch"], workers), tell(loader_class, workers)
    for sample in theirs + mine:
        assert sample.pop("pid") != os.getpid()
    assert mine == theirs
    assert [sample["worker"] for sample in mine] == [index % workers for index in range(8)]
    for sample in mine:
        assert sample["own"]
        assert sample["of"] == workers
        assert sample["seed"] == sample["torch"]
        assert sample["marked"][:2] == ("worker", sample["worker"])
        assert sample["daemon"]
        assert sample["threads"] == 1


def test_there_is_no_worker_info_without_workers(loader_class: LoaderClass) -> None:
    assert get_worker_info() is None
    assert {sample["worker"] for sample in tell(loader_class, 0)} == {None}
    assert get_worker_info() is None


def test_worker_info_is_there_for_collate_and_for_streams(loader_class: LoaderClass) -> None:
    loader = loader_class(Streams((2, 2)), batch_size=1, num_workers=2, collate_fn=with_worker)
    assert list(loader) == [(0, [0]), (1, [100]), (0, [1]), (1, [101])]


def with_worker(samples: list[int]) -> tuple[int, list[int]]:
    """Collate to the worker's number and the samples."""
    info = get_worker_info()
    assert info is not None
    return info.id, samples


def test_worker_info_cannot_be_changed(loader_class: LoaderClass) -> None:
    loader = loader_class([0], num_workers=1, worker_init_fn=change_info)
    assert type(error_of(loader)) is FrozenInstanceError


def change_info(_: int) -> None:
    """Try to become another worker."""
    info: Any = get_worker_info()
    info.id = 7


def test_each_epoch_has_seeds_of_its_own(loader_class: LoaderClass) -> None:
    def two_epochs(which: LoaderClass) -> list[list[int]]:
        torch.manual_seed(5)
        loader = which(Introspective(), batch_size=None, num_workers=2, collate_fn=as_list)
        return [[sample["seed"] for sample in loader] for _ in range(2)]

    seeds = two_epochs(loader_class)
    assert seeds[0] != seeds[1]
    assert seeds == two_epochs(LOADERS["torch"])


class Inner:
    """A dataset that uses a loader of its own for every sample."""

    def __init__(self, loader_class: LoaderClass, workers: int) -> None:
        self.loader_class = loader_class
        self.workers = workers

    def __len__(self) -> int:
        return 3

    def __getitem__(self, index: int) -> Any:
        loader = self.loader_class(
            MapRows(4), batch_size=2, num_workers=self.workers, collate_fn=as_list
        )
        return [index, list(loader)]


def test_a_loader_without_workers_works_inside_a_worker(loader_class: LoaderClass) -> None:
    loader = loader_class(
        Inner(loader_class, 0), batch_size=None, num_workers=2, collate_fn=as_list
    )
    assert list(loader) == [[index, [[0, 1], [2, 3]]] for index in range(3)]


def test_a_loader_with_workers_inside_a_worker_is_refused_with_torchs_words(
    loader_class: LoaderClass,
) -> None:
    loader = loader_class(Inner(loader_class, 1), batch_size=None, num_workers=1)
    error = error_of(loader)
    assert type(error) is AssertionError
    assert first_line(error) == "Caught AssertionError in DataLoader worker process 0."
    assert "daemonic processes are not allowed to have children" in str(error)


# --- in a forked child of the program ----------------------------------------------------------


def in_child(program: Callable[[], Any]) -> Any:
    """Run a program in a forked child of this process; give its answer."""
    context = multiprocessing.get_context("fork")
    here, there = context.Pipe(duplex=False)

    def run() -> None:
        try:
            there.send(program())
        except BaseException as error:
            there.send(f"{type(error).__name__}: {error}")

    child = context.Process(target=run)
    child.start()
    there.close()
    try:
        assert here.poll(60), "the child does not answer"
        answer = here.recv()
        child.join(30)
        assert child.exitcode == 0
    finally:
        child.kill()
        child.join(30)
        here.close()
    return answer


@WORKERS
def test_a_loader_works_in_a_forked_child(workers: int, loader_class: LoaderClass) -> None:
    loader = pairs(loader_class, workers)
    assert list(loader) == PAIRS
    assert in_child(lambda: list(loader)) == PAIRS
    assert list(loader) == PAIRS


def test_a_forked_child_does_not_disturb_an_iterator_it_inherited(ours: LoaderClass) -> None:
    # Ours only: in torch the child's copy ends the parent's workers when it is dropped.
    loader = pairs(ours, 2)
    holder = [iter(loader)]
    assert next(holder[0]) == PAIRS[0]

    def drop_the_copy() -> Any:
        holder.clear()
        gc.collect()
        return list(loader)

    assert in_child(drop_the_copy) == PAIRS
    assert list(holder[0]) == PAIRS[1:]


def test_a_forked_child_cannot_use_an_iterator_it_inherited(ours: LoaderClass) -> None:
    # Ours only: two processes reading the same pipes would be wrong data or a hang.
    iterator = iter(pairs(ours, 1))
    assert next(iterator) == PAIRS[0]
    answer = in_child(lambda: next(iterator))
    assert isinstance(answer, str)
    assert "Error" in answer or "Closed" in answer
    assert list(iterator) == PAIRS[1:]


# --- persistent workers ------------------------------------------------------------------------


class Remembering:
    """A dataset whose copy in a worker counts the samples it has loaded."""

    def __init__(self) -> None:
        self.loaded = 0
        self.word = "first"

    def __len__(self) -> int:
        return 6

    def __getitem__(self, index: int) -> tuple[int, int, int, str]:
        self.loaded += 1
        return index, os.getpid(), self.loaded, self.word


def test_persistent_workers_keep_process_and_dataset(
    loader_class: LoaderClass, no_new_children: Callable[[], None]
) -> None:
    dataset = Remembering()
    loader = loader_class(
        dataset, batch_size=None, num_workers=2, persistent_workers=True, collate_fn=as_list
    )
    first = list(loader)
    dataset.word = "second"
    second = list(loader)
    assert {pid for _, pid, _, _ in first} == {pid for _, pid, _, _ in second}
    assert [loaded for _, _, loaded, _ in first + second] == [1, 1, 2, 2, 3, 3, 4, 4, 5, 5, 6, 6]
    # They keep the copy they began with, as torch documents.
    assert {word for *_, word in second} == {"first"}
    assert [index for index, *_ in second] == list(range(6))
    del loader
    no_new_children()


def test_other_workers_are_new_in_each_epoch(loader_class: LoaderClass) -> None:
    dataset = Remembering()
    loader = loader_class(dataset, batch_size=None, num_workers=2, collate_fn=as_list)
    first, second = list(loader), list(loader)
    assert not {pid for _, pid, _, _ in first} & {pid for _, pid, _, _ in second}
    assert [loaded for _, _, loaded, _ in second] == [1, 1, 2, 2, 3, 3]


def test_a_loader_with_persistent_workers_has_one_iterator(loader_class: LoaderClass) -> None:
    loader = pairs(loader_class, 2, persistent_workers=True)
    assert loader._iterator is None
    iterator = iter(loader)
    assert loader._iterator is iterator
    assert list(iterator) == PAIRS
    assert iter(loader) is iterator
    assert list(iterator) == PAIRS


def test_a_persistent_iterator_taken_again_in_mid_epoch_begins_anew(
    loader_class: LoaderClass,
) -> None:
    loader = pairs(loader_class, 2, persistent_workers=True)
    for taken in (1, 3, 2):
        iterator = iter(loader)
        assert [next(iterator) for _ in range(taken)] == PAIRS[:taken]
    assert list(loader) == PAIRS


def test_a_persistent_stream_begins_anew_in_each_epoch(loader_class: LoaderClass) -> None:
    loader = loader_class(
        Streams((3, 1)),
        batch_size=2,
        num_workers=2,
        persistent_workers=True,
        collate_fn=as_list,
    )
    for _ in range(3):
        assert list(loader) == [[0, 1], [100], [2]]


def test_resetting_the_iterator_from_outside_ends_persistent_workers(
    loader_class: LoaderClass, no_new_children: Callable[[], None]
) -> None:
    loader = pairs(loader_class, 2, persistent_workers=True)
    assert list(loader) == PAIRS
    workers = list(loader._iterator._workers)
    assert all(worker.is_alive() for worker in workers)
    loader._iterator = None
    assert wait_until(lambda: not any(worker.is_alive() for worker in workers), within_s=30)
    no_new_children()
    assert list(loader) == PAIRS
    loader._iterator = None
    no_new_children()


def test_an_error_in_one_epoch_does_not_spoil_the_next_of_persistent_workers(
    loader_class: LoaderClass,
) -> None:
    dataset = MapRows(10, bad=frozenset({4}))
    loader = loader_class(
        dataset, batch_size=2, num_workers=2, persistent_workers=True, collate_fn=as_list
    )
    epochs = watch(loader, 3)
    assert epochs[0] == epochs[1] == epochs[2]
    assert len(epochs[0]) == 6


# --- workers seen from outside -----------------------------------------------------------------


def test_the_iterator_shows_its_workers_as_processes(
    loader_class: LoaderClass, no_new_children: Callable[[], None]
) -> None:
    loader = loader_class(SlowAt(6, 30, length=40), num_workers=2, collate_fn=as_list)
    iterator = iter(loader)
    next(iterator)
    workers = iterator._workers
    assert len(workers) == 2
    assert len({worker.pid for worker in workers}) == 2
    for worker in workers:
        assert isinstance(worker.pid, int)
        assert worker.is_alive()
        assert worker.exitcode is None
        os.kill(worker.pid, 0)
    held = list(workers)
    iterator._shutdown_workers()
    for worker in held:
        worker.join(timeout=30)
        assert not worker.is_alive()
        assert worker.exitcode is not None
    no_new_children()


def test_the_pids_shown_are_those_the_samples_are_loaded_in(loader_class: LoaderClass) -> None:
    iterator = iter(loader_class(Introspective(), batch_size=None, num_workers=2))
    pids = [worker.pid for worker in iterator._workers]
    for sample in iterator:
        assert sample["pid"] == pids[sample["worker"]]


def test_shutting_down_twice_is_harmless(
    loader_class: LoaderClass, no_new_children: Callable[[], None]
) -> None:
    iterator = iter(pairs(loader_class, 2))
    next(iterator)
    iterator._shutdown_workers()
    iterator._shutdown_workers()
    no_new_children()


def test_asking_after_shutdown_is_an_error_and_no_hang(ours: LoaderClass) -> None:
    iterator = iter(loader_of_slow_pairs(ours))
    next(iterator)
    iterator._shutdown_workers()
    # Ours only: torch sometimes still has a batch in hand here, sometimes an AssertionError.
    with pytest.raises(Exception):  # noqa: B017 - which error is no promise
        for _ in range(10):
            next(iterator)


def loader_of_slow_pairs(loader_class: LoaderClass) -> Any:
    """Make a loader whose sixth sample takes longer than any test."""
    return loader_class(SlowAt(5, 100), batch_size=1, num_workers=1, prefetch_factor=1)


def test_a_worker_may_be_terminated_by_hand_before_the_shutdown(
    loader_class: LoaderClass, no_new_children: Callable[[], None]
) -> None:
    iterator = iter(loader_of_slow_pairs(loader_class))
    next(iterator)
    for worker in iterator._workers:
        worker.terminate()
        try:
            worker.join(30)
        except RuntimeError as error:
            # torch raises from its signal handler wherever the main thread is.
            assert "is killed by signal: Terminated" in str(error)
    try:
        iterator._shutdown_workers()
    except RuntimeError as error:
        assert "is killed by signal: Terminated" in str(error)
    del iterator
    no_new_children()


@WORKERS
def test_the_profiler_sees_each_step_under_torchs_name(
    workers: int, loader_class: LoaderClass
) -> None:
    with torch.autograd.profiler.profile() as profile:
        assert list(pairs(loader_class, workers)) == PAIRS
    names = [
        event.name for event in profile.function_events if "enumerate(DataLoader)" in event.name
    ]
    assert len(names) == len(PAIRS) + 1
    for name in names:
        assert name.startswith("enumerate(DataLoader)#")
        assert name.endswith(".__next__")


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


# --- iterable datasets -------------------------------------------------------------------------


class OwnIterator(IterableDataset):
    """An iterable dataset that is its own iterator: one pass in all, unless it is copied."""

    def __init__(self, length: int) -> None:
        self.left = length

    def __iter__(self) -> "OwnIterator":
        return self

    def __next__(self) -> int:
        if not self.left:
            raise StopIteration
        self.left -= 1
        return self.left


@WORKERS
@pytest.mark.parametrize("batch_size", [None, 2])
def test_a_dataset_that_is_its_own_iterator_is_used_as_torch_does(
    workers: int, batch_size: int | None, loader_class: LoaderClass
) -> None:
    def epochs(which: LoaderClass) -> list[Any]:
        loader = which(
            OwnIterator(5), batch_size=batch_size, num_workers=workers, collate_fn=as_list
        )
        return watch(loader, 2, see=as_list)

    seen = epochs(loader_class)
    assert seen == epochs(LOADERS["torch"])
    assert len(seen[0]) > 3


class TwoAtATime(IterableDataset):
    """An iterable dataset whose one generator feeds every loop."""

    def __iter__(self) -> Iterator[int]:
        yield from range(6)


def test_two_loops_over_an_iterable_dataset_do_not_mix(loader_class: LoaderClass) -> None:
    loader = loader_class(TwoAtATime(), batch_size=3, num_workers=1, collate_fn=as_list)
    assert list(zip(loader, loader, strict=True)) == [([0, 1, 2],) * 2, ([3, 4, 5],) * 2]


def double(number: int) -> int:
    """Map of the pipe."""
    return 2 * number


def not_six(number: int) -> bool:
    """Filter of the pipe."""
    return number != 6


def make_pipe(kind: str) -> Any:
    """Make a data pipe of the kind named."""
    pipe = IterableWrapper(list(range(12)))
    match kind:
        case "plain":
            return pipe.map(double).filter(not_six)
        case "shuffled":
            return pipe.shuffle().map(double)
        case "sharded":
            return pipe.shuffle().sharding_filter().map(double).batch(2)
        case "map":
            return SequenceWrapper(list(range(12))).map(double)
    raise AssertionError(kind)


@pytest.mark.filterwarnings("ignore::DeprecationWarning")
@pytest.mark.filterwarnings("ignore::FutureWarning")
@pytest.mark.parametrize("kind", ["plain", "shuffled", "sharded", "map"])
@pytest.mark.parametrize("shuffle", [None, True, False])
@pytest.mark.parametrize(("workers", "persistent"), [(0, False), (2, False), (2, True)])
def test_data_pipes_give_what_they_give_with_torch(
    kind: str, shuffle: bool | None, workers: int, persistent: bool, loader_class: LoaderClass
) -> None:
    if loader_class is LOADERS["torch"]:
        pytest.skip("nothing to compare torch's loader with")

    def epochs(which: LoaderClass) -> list[Any]:
        torch.manual_seed(3)
        loader = which(
            make_pipe(kind),
            batch_size=2,
            shuffle=shuffle,
            num_workers=workers,
            persistent_workers=persistent,
        )
        return watch(loader, 2, see=describe)

    assert epochs(loader_class) == epochs(LOADERS["torch"])


# --- pinned memory -----------------------------------------------------------------------------


@pytest.mark.skipif(torch.accelerator.is_available(), reason="there is an accelerator to pin for")
@WORKERS
@pytest.mark.parametrize("device", ["", "cuda"])
def test_pinning_without_an_accelerator_is_torchs_warning_and_plain_batches(
    workers: int, device: str, loader_class: LoaderClass
) -> None:
    def program(which: LoaderClass) -> None:
        loader = which(
            MapRows(4, "dict"), num_workers=workers, pin_memory=True, pin_memory_device=device
        )
        batches = list(loader)
        assert len(batches) == 4
        assert not batches[0]["row"].is_pinned()

    theirs = caught_warnings(lambda: program(LOADERS["torch"]))
    assert any("no accelerator is found" in text for _, text in theirs)
    assert caught_warnings(lambda: program(loader_class)) == theirs


# --- whole programs ----------------------------------------------------------------------------

HEALTHY = """
import torch
from torch.utils.data import IterableDataset

class Rows(torch.utils.data.Dataset):
    def __len__(self):
        return 40
    def __getitem__(self, index):
        return {"row": torch.full((100,), index), "name": str(index)}

class Stream(IterableDataset):
    def __iter__(self):
        return iter(range(7))

if __name__ == "__main__":
    for arguments in (
        {"num_workers": 0},
        {"num_workers": 2},
        {"num_workers": 2, "persistent_workers": True},
        {"num_workers": 1, "multiprocessing_context": "spawn"},
    ):
        loader = DataLoader(Rows(), batch_size=8, shuffle=True, **arguments)
        for epoch in range(1 + (arguments["num_workers"] == 2)):
            assert len(list(loader)) == 5
        for batch in loader:
            break
        kept = iter(DataLoader(Stream(), batch_size=2, **arguments))
        next(kept)
    alive = iter(DataLoader(Rows(), num_workers=2))
    next(alive)
    print("done")
"""


def test_a_healthy_program_writes_nothing_to_stderr(which: str, tmp_path: Path) -> None:
    # It ends with live iterators on purpose: ending is part of being healthy.
    assert run_script(tmp_path, which, HEALTHY) == (0, "done\n", "")


INTERRUPTED = """
import time

class Rows:
    def __len__(self):
        return 100_000
    def __getitem__(self, index):
        if index >= SLOW_FROM:
            time.sleep(300)
        return index

if __name__ == "__main__":
    loader = DataLoader(Rows(), batch_size=4, num_workers=2, PERSISTENT)
    for number, batch in enumerate(loader):
        if number == 3:
            print("ready", flush=True)
        time.sleep(0.01)
"""


@pytest.mark.parametrize("slow_from", [100_000, 16], ids=["in_the_step", "while_waiting"])
@pytest.mark.parametrize("persistent", ["", "persistent_workers=True"], ids=["plain", "persistent"])
def test_ctrl_c_is_one_traceback_and_nothing_left(
    slow_from: int, persistent: str, which: str, tmp_path: Path
) -> None:
    if persistent and which == "torch":
        pytest.skip("one look at torch's behaviour is enough")
    body = INTERRUPTED.replace("SLOW_FROM", str(slow_from)).replace("PERSISTENT", persistent)
    with start_script(tmp_path, which, body) as script:
        assert script.read_line() == "ready"
        script.signal_group(signal.SIGINT)
        code, _, err = script.finish(within_s=60)
        assert code == -signal.SIGINT
        assert err.startswith("Traceback (most recent call last):")
        assert err.count("Traceback (most recent call last)") == 1
        assert err.rstrip().endswith("KeyboardInterrupt")
        assert wait_until(lambda: not script.members(), within_s=30), script.members()


@pytest.mark.parametrize("slow_from", [100_000, 16], ids=["busy", "stuck_in_a_sample"])
def test_when_the_program_is_killed_its_workers_end_too(
    slow_from: int, ours: LoaderClass, tmp_path: Path
) -> None:
    # Ours only: a torch worker inside a long sample, or with a full pipe, stays for ever.
    body = INTERRUPTED.replace("SLOW_FROM", str(slow_from)).replace("PERSISTENT", "")
    with start_script(tmp_path, "antifreeze", body) as script:
        assert script.read_line() == "ready"
        assert len(script.members()) >= 3
        script.process.kill()
        assert wait_until(lambda: not script.members(), within_s=30), script.members()


# --- a worker dies (ours only: torch ends the run, with one of several messages) ---------------


@dataclass
class DiesOnce:
    """A dataset in which one sample kills its process, the first time it is asked for."""

    flag: Path
    deadly: int
    length: int = 40

    def __len__(self) -> int:
        return self.length

    def __getitem__(self, index: int) -> int:
        if index == self.deadly and not self.flag.exists():
            self.flag.write_text(str(os.getpid()))
            os.kill(os.getpid(), signal.SIGKILL)
        return index


@pytest.mark.parametrize("workers", [1, 2])
@pytest.mark.parametrize("deadly", [0, 17, 39])
@pytest.mark.parametrize("persistent", [False, True])
def test_a_killed_worker_costs_nothing_in_a_map_style_run(
    workers: int,
    deadly: int,
    persistent: bool,
    ours: LoaderClass,
    tmp_path: Path,
    no_new_children: Callable[[], None],
) -> None:
    dataset = DiesOnce(tmp_path / "died", deadly)
    loader = ours(
        dataset,
        batch_size=3,
        num_workers=workers,
        persistent_workers=persistent,
        collate_fn=as_list,
    )
    samples = [index for batch in loader for index in batch]
    assert samples == list(range(40))
    assert dataset.flag.exists()
    assert [index for batch in loader for index in batch] == samples
    del loader
    no_new_children()


def test_a_worker_killed_from_outside_costs_nothing_in_a_map_style_run(
    ours: LoaderClass, no_new_children: Callable[[], None]
) -> None:
    loader = ours(MapRows(300), num_workers=2, collate_fn=as_list)
    iterator = iter(loader)
    seen = []
    for batch in iterator:
        seen.append(batch[0])
        if len(seen) in (20, 150):
            os.kill(iterator._workers[len(seen) % 2].pid, signal.SIGKILL)
    assert seen == list(range(300))
    del iterator, loader
    no_new_children()


def test_a_persistent_worker_killed_between_epochs_is_replaced(ours: LoaderClass) -> None:
    loader = pairs(ours, 2, persistent_workers=True)
    assert list(loader) == PAIRS
    os.kill(loader._iterator._workers[1].pid, signal.SIGKILL)
    assert list(loader) == PAIRS
    assert list(loader) == PAIRS


def test_a_replaced_worker_has_its_number_and_its_start_again(
    ours: LoaderClass, tmp_path: Path
) -> None:
    dataset = Replaced(tmp_path / "died")
    loader = ours(dataset, batch_size=None, num_workers=2, worker_init_fn=mark, collate_fn=as_list)
    samples = list(loader)
    assert [sample["index"] for sample in samples] == list(range(8))
    for sample in samples:
        assert sample["worker"] in (0, 1)
        assert sample["of"] == 2
        assert sample["own"]
        assert sample["marked"][:2] == ("worker", sample["worker"])
    assert len({sample["pid"] for sample in samples}) == 3


class Replaced(Introspective):
    """The introspective dataset; the worker of sample 3 dies once, having loaded others."""

    def __init__(self, flag: Path) -> None:
        self.flag = flag

    def __getitem__(self, index: int) -> dict[str, Any]:
        if index == 3 and not self.flag.exists():
            self.flag.touch()
            os.kill(os.getpid(), signal.SIGKILL)
        return super().__getitem__(index)


@dataclass
class DyingStream(IterableDataset):
    """A stream whose worker 1 is killed after two values."""

    note: Path

    def __iter__(self) -> Iterator[int]:
        info = get_worker_info()
        assert info is not None
        for number in range(6):
            if info.id == 1 and number == 2:
                self.note.write_text(str(os.getpid()))
                os.kill(os.getpid(), signal.SIGKILL)
            yield 100 * info.id + number


def test_a_killed_worker_of_an_iterable_dataset_is_torchs_error_with_its_pid(
    ours: LoaderClass, tmp_path: Path, no_new_children: Callable[[], None]
) -> None:
    stream = DyingStream(tmp_path / "pid")
    loader = ours(stream, batch_size=None, num_workers=2, collate_fn=as_list)
    seen: list[int] = []
    error = error_of(seen.append(number) for number in loader)
    assert isinstance(error, RuntimeError)
    pid = stream.note.read_text()
    assert str(error).startswith(f"DataLoader worker (pid {pid}) is killed by signal: Killed")
    # What was loaded before is not lost.
    assert seen[:4] == [0, 100, 1, 101]
    again = pickle.loads(pickle.dumps(error))
    assert type(again) is type(error)
    assert str(again) == str(error)
    del loader
    no_new_children()
