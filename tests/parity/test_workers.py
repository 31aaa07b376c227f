"""Workers as their datasets, the program and its children see them."""

import gc
import multiprocessing
import os
import time
from collections.abc import Callable
from dataclasses import FrozenInstanceError
from typing import Any

import pytest
import torch
from torch.utils.data import get_worker_info

from tests.torch_versions import WORKER_INFO_IS_FROZEN_DATACLASS

from .observe import LOADERS, LoaderClass, error_of, first_line, wait_until, watch
from .programs import PAIRS, Introspective, MapRows, SlowAt, Streams, as_list, mark, pairs

WORKERS = pytest.mark.parametrize("workers", [0, 2])


# --- seen from inside a worker -----------------------------------------------------------------


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
def test_worker_info_and_seeds_are_torchs_for_the_same_generator(
    workers: int, loader_class: LoaderClass
) -> None:
    theirs, mine = tell(LOADERS["torch"], workers), tell(loader_class, workers)
    for sample in theirs + mine:
        assert sample.pop("pid") != os.getpid()
        assert len(sample.pop("draws")) == 3  # ours belong to the sample: see test_randomness
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
    error = FrozenInstanceError if WORKER_INFO_IS_FROZEN_DATACLASS else RuntimeError
    assert type(error_of(loader)) is error


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
    started = time.monotonic()
    error = error_of(loader)
    assert time.monotonic() - started < 4
    assert type(error) is AssertionError
    assert first_line(error) == "Caught AssertionError in DataLoader worker process 0."
    assert "daemonic processes are not allowed to have children" in str(error)
    if loader_class is LOADERS["antifreeze"]:
        assert "A loader in it, as one inside a dataset, needs num_workers=0" in str(error)


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


@pytest.mark.filterwarnings("ignore:antifreeze. dataset")  # kept, and said: test_torch_pitfalls.py
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


@pytest.mark.filterwarnings("ignore:antifreeze. dataset")
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
    ours: LoaderClass, no_new_children: Callable[[], None]
) -> None:
    # Ours only: torch raises from a signal handler here, or waits for a lock the worker held.
    iterator = iter(loader_of_slow_pairs(ours))
    next(iterator)
    for worker in iterator._workers:
        worker.terminate()
        worker.join(30)
        assert not worker.is_alive()
    iterator._shutdown_workers()
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
