"""Forks that were wrong after all: real workers wait for what they inherited; nothing is lost."""

from __future__ import annotations

import contextlib
import faulthandler
import functools
import logging
import multiprocessing
import os
import random
import signal
import sys
import threading
import time
import warnings
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from typing import Any

import psutil
import pytest
import torch
from torch.utils.data import IterableDataset

from antifreeze import DataLoader
from antifreeze._core.fork_or_clean import Wish, WorkerOrigin
from antifreeze._processes.fork_safety import fork_hazards, threads_at_fork
from antifreeze._processes.starting import start_method
from antifreeze.errors import WorkerHung

from ..conftest import clean_process_pid
from ..other_limits import other_limits
from ..patience import PATIENCE_S
from .parked import wait_until_parked

SAMPLES = 48
# So deep that the search does not find it: what it does find is a hazard from the start.
HIDDEN: dict[int, Any] = dict.fromkeys(range(40))
HIDDEN[40] = [threading.Lock()]
FOUND = sys.version_info < (3, 13)  # a lock, by where a worker waits
HELD_S = 6.0  # what a held lock may cost
TORCH_SAYS = (
    "Cannot re-initialize CUDA in forked subprocess. To use CUDA with multiprocessing, you must use"
    " the 'spawn' start method"
)


@pytest.fixture(autouse=True)
def no_earlier_forks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(start_method, "_stuck", [])
    start_method._unfit.clear()


@contextlib.contextmanager
def writer() -> Iterator[None]:
    """Have a thread hold the hidden lock, and wait: as far as can be seen it is parked."""
    taken, done = threading.Event(), threading.Event()

    def hold() -> None:
        HIDDEN[40][0].acquire()
        taken.set()
        done.wait()
        HIDDEN[40][0].release()

    thread = threading.Thread(target=hold, name="writer")
    thread.start()
    taken.wait()
    wait_until_parked(thread)
    try:
        yield
    finally:
        done.set()
        thread.join()


class Needs:
    """A dataset that needs the hidden lock from some sample on."""

    def __init__(self, first: int, once: str = "") -> None:
        self.first, self.once = first, once

    def __len__(self) -> int:
        return SAMPLES

    def __getitem__(self, index: int) -> int:
        if index == self.first and self.once and not os.path.exists(self.once):
            Path(self.once).touch()
            os._exit(3)
        if index >= self.first:
            with HIDDEN[40][0]:
                pass
        return index


class Streamed(IterableDataset[int]):
    def __init__(self, first: int) -> None:
        self.first = first

    def __iter__(self) -> Iterator[int]:
        for index in range(SAMPLES):
            if index >= self.first:
                with HIDDEN[40][0]:
                    pass
            yield index


def took(loader: Any) -> tuple[list[int], float]:
    """Run an epoch; return what came, and the longest wait."""
    got, longest_s, began = [], 0.0, time.monotonic()
    for batch in loader:
        longest_s = max(longest_s, time.monotonic() - began)
        got += batch.tolist()
        began = time.monotonic()
    return got, longest_s


def warned(caplog: pytest.LogCaptureFixture) -> list[str]:
    return [r.getMessage() for r in caplog.records if r.levelno >= logging.WARNING]


@pytest.mark.parametrize("first", [0, 40])
@pytest.mark.parametrize("persistent", [False, True])
def test_a_lock_that_was_held_at_the_fork_costs_seconds_and_no_sample(
    first: int, persistent: bool, caplog: pytest.LogCaptureFixture
) -> None:
    loader: DataLoader[int] = DataLoader(
        Needs(first),
        4,
        num_workers=2,
        persistent_workers=persistent,
    )
    with writer():
        got, longest_s = took(loader)
        assert got == list(range(SAMPLES))
        assert longest_s < 5 * HELD_S
        assert loader._lineage().choice.descent is WorkerOrigin.CLEAN_PROCESS
        assert took(loader)[0] == list(range(SAMPLES))
    faults = loader.faults
    del loader
    (said,) = warned(caplog)
    if FOUND:
        assert " waits forever at test_stuck_forks.py:" in said
        assert f", for {__name__}.HIDDEN[40][0], held by the thread writer at the fork" in said
    else:
        assert "seems to wait forever at test_stuck_forks.py:" in said and "(writer)" in said
    assert "clean process, with the dataset as it is now; what they held is loaded again" in said
    assert faults == []


class Gated(Needs):
    """It uses a plain semaphore as a mutex."""

    def __init__(self, first: int) -> None:
        super().__init__(first)
        self.gate = threading.Semaphore(1)

    def __getitem__(self, index: int) -> int:
        if index >= self.first:
            with self.gate:
                pass
        return index


@contextlib.contextmanager
def gatekeeper(gate: threading.Semaphore, *, by_hand: bool) -> Iterator[None]:
    """Have a thread hold a semaphore, and wait; what it has taken by hand is not seen."""
    taken, done = threading.Event(), threading.Event()

    def hold() -> None:
        if by_hand:
            gate.acquire()
            taken.set()
            done.wait()
            gate.release()
            return
        with gate:
            taken.set()
            done.wait()

    thread = threading.Thread(target=hold, name="gatekeeper")
    thread.start()
    taken.wait()
    try:
        yield
    finally:
        done.set()
        thread.join()


@pytest.mark.parametrize("first", [0, 40])
def test_a_semaphore_that_was_held_at_the_fork_arrives_with_a_permit(
    first: int, caplog: pytest.LogCaptureFixture
) -> None:
    dataset: Any = Gated(first)
    loader: DataLoader[int] = DataLoader(dataset, 4, num_workers=2)
    with gatekeeper(dataset.gate, by_hand=True):
        got, longest_s = took(loader)
        assert got == list(range(SAMPLES))
        assert longest_s < 5 * HELD_S
        assert took(loader)[0] == list(range(SAMPLES))
    faults = loader.faults
    del loader
    (said,) = warned(caplog)
    assert " waits forever at test_stuck_forks.py:" in said
    assert ", for the semaphore dataset.gate, held by the thread gatekeeper at the fork" in said
    assert "forkserver" not in said  # there it would arrive as it is
    assert faults == []


def test_a_semaphore_that_is_seen_to_be_held_costs_nothing(
    caplog: pytest.LogCaptureFixture,
) -> None:
    dataset: Any = Gated(0)
    with gatekeeper(dataset.gate, by_hand=False):
        loader: DataLoader[int] = DataLoader(dataset, 4, num_workers=2)
        assert took(loader)[0] == list(range(SAMPLES))
    assert loader.faults == [] and warned(caplog) == []


class Patient(Needs):
    """It asks again and again, or has a thread of its own that may release the lock one day: so
    nothing proves that it never goes on."""

    def __init__(self, first: int, *, polls: bool) -> None:
        super().__init__(first)
        self.polls = polls
        self.ticks: threading.Thread | None = None

    def __getitem__(self, index: int) -> int:
        if index < self.first:
            return index
        if not self.polls:
            if self.ticks is None:
                self.ticks = threading.Thread(target=time.sleep, args=(PATIENCE_S,), daemon=True)
                self.ticks.start()
            return super().__getitem__(index)
        while not HIDDEN[40][0].acquire(timeout=0.5):
            pass
        HIDDEN[40][0].release()
        return index


@pytest.mark.parametrize("polls", [True, False])
def test_a_lock_that_may_have_been_held_at_the_fork_costs_the_time_of_a_sample(
    polls: bool, caplog: pytest.LogCaptureFixture
) -> None:
    dataset: Any = Patient(20, polls=polls)
    loader: DataLoader[int] = DataLoader(dataset, 4, num_workers=2, sample_timeout=6)
    with writer():
        assert took(loader)[0] == list(range(SAMPLES))
        assert loader._lineage().choice.descent is WorkerOrigin.CLEAN_PROCESS
    faults = loader.faults
    del loader
    said = [each for each in warned(caplog) if "clean process" in each]
    assert len(said) == 1 and "may have held at the fork" in said[0] and "(writer)" in said[0]
    assert faults == []


def test_also_when_the_first_try_at_that_sample_had_failed(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    once = str(tmp_path / "once")
    with writer():
        loader = DataLoader(Needs(41, once), 4, num_workers=2)
        assert took(loader)[0] == list(range(SAMPLES))
    assert [fault.kind for fault in loader.faults] == ["crash"]
    assert len(warned(caplog)) == 2


def test_the_programs_other_loaders_need_not_learn_it_again(
    caplog: pytest.LogCaptureFixture,
) -> None:
    with writer():
        took(DataLoader(Needs(0), 4, num_workers=1))
        other = DataLoader(Needs(0), 4, num_workers=1)
        assert took(other)[0] == list(range(SAMPLES))
        assert other._lineage().choice.descent is WorkerOrigin.CLEAN_PROCESS
    assert len(warned(caplog)) == 1


def test_a_second_loop_that_has_chosen_for_itself_does_not_tell_the_same_again(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """One that begins long after another has looked at the threads itself."""
    dataset = Needs(SAMPLES)
    for _ in range(2):
        method = start_method.StartMethod(Wish.NONE, dataset)
        method.choice = replace(method.choice, descent=WorkerOrigin.MAIN, beside="a parked thread")
        assert method.leave_fork("worker 0 has waited too long at here.py:1, for a lock")
    assert len([each for each in warned(caplog) if "clean process" in each]) == 1


def test_two_loops_over_one_loader_are_both_saved_and_it_is_said_once(
    caplog: pytest.LogCaptureFixture,
) -> None:
    loader = DataLoader(Needs(8), 4, num_workers=2)
    with writer(), warnings.catch_warnings():
        warnings.simplefilter("ignore")  # two loops at once
        one, other = iter(loader), iter(loader)
        assert [torch.cat(list(each)).tolist() for each in (one, other)] == [
            list(range(SAMPLES)),
            list(range(SAMPLES)),
        ]
    assert loader.faults == []
    assert len([each for each in warned(caplog) if "clean process" in each]) == 1


class Stuck(Needs):
    """It waits for what nobody gives, wherever it is: no fault of a fork."""

    def __getitem__(self, index: int) -> int:
        if index == self.first:
            threading.Event().wait()
        return index


def test_what_hangs_in_a_clean_process_too_says_nothing_of_forks() -> None:
    with writer():
        loader = DataLoader(Stuck(5), 4, num_workers=1, on_error="skip")
        assert took(loader)[0] == [index for index in range(SAMPLES) if index != 5]
        assert start_method._stuck == []
        other = DataLoader(Needs(SAMPLES), 4, num_workers=1)
        assert took(other)[0] == list(range(SAMPLES))
        assert other._lineage().choice.descent is WorkerOrigin.MAIN


@pytest.mark.parametrize("runs", [False, True])
def test_a_zygote_that_is_made_anew_is_forked_as_safely_as_the_first(runs: bool) -> None:
    """A thread has come up since the epoch began: a parked one that holds a lock, or one that
    runs."""
    loader = DataLoader(Needs(40), 4, num_workers=2, prefetch_factor=1)
    iterator = iter(loader)
    got = next(iterator).tolist()
    source = iterator._driver._backend._source
    done = threading.Event()

    def run() -> None:
        while not done.is_set():
            sum(range(1000))

    thread = threading.Thread(target=run)
    with writer():
        if runs:
            thread.start()
        try:
            os.kill(source.parent.acting_pid, signal.SIGKILL)
            for worker in iterator._workers:
                worker.kill()
            for batch in iterator:
                got += batch.tolist()
        finally:
            done.set()
            if runs:
                thread.join()
    assert got == list(range(SAMPLES))
    assert loader._lineage().choice.descent is WorkerOrigin.CLEAN_PROCESS
    assert loader._lineage().choice.is_last != runs  # it was not forked at all


def test_a_stream_that_has_given_nothing_begins_anew_and_another_says_what_holds_it() -> None:
    with writer():
        loader = DataLoader(Streamed(0), 4, num_workers=1)
        assert took(loader)[0] == list(range(SAMPLES))
    start_method._stuck.clear()
    with writer(), pytest.raises(WorkerHung) as caught:
        took(DataLoader(Streamed(40), 4, num_workers=1))
    assert "deadlocked at test_stuck_forks.py:" in str(caught.value)


def test_a_fork_that_was_asked_for_is_never_left() -> None:
    with writer(), pytest.raises(WorkerHung):
        took(DataLoader(Needs(8), 4, num_workers=1, multiprocessing_context="fork"))


def test_what_can_be_neither_forked_nor_sent_ends_with_all_that_is_known() -> None:
    dataset = Needs(8)
    dataset.frame = sys._getframe()
    with writer(), pytest.raises(WorkerHung) as caught:
        took(DataLoader(dataset, 4, num_workers=1))
    said = str(caught.value)
    assert "at test_stuck_forks.py:" in said and "1 parked thread (writer)" in said
    assert "could not be started in a clean process" in said and "dataset.frame" in said


# ---- an accelerator ------------------------------------------------------------------------------


@pytest.fixture
def context(monkeypatch: pytest.MonkeyPatch) -> None:
    """Have this process seem to have a context of an accelerator."""
    monkeypatch.setattr(torch.cuda, "_initialized", True)


def is_fork_of_program() -> bool:
    names = [each.name() for each in psutil.Process().parents()]
    return not any(name.startswith("af_clean") for name in names)


class Moves:
    """A dataset that uses the accelerator, from some sample on."""

    def __init__(self, first: int = 0) -> None:
        self.first = first

    def __len__(self) -> int:
        return SAMPLES

    def __getitem__(self, index: int) -> int:
        if index >= self.first and is_fork_of_program():
            raise RuntimeError(TORCH_SAYS)
        return index


def collates(samples: list[int]) -> torch.Tensor:
    if is_fork_of_program():
        raise RuntimeError(TORCH_SAYS)
    return torch.tensor(samples)


def begins(worker: int) -> None:
    if is_fork_of_program():
        raise RuntimeError(TORCH_SAYS)


@pytest.mark.usefixtures("context")
def test_a_context_alone_is_no_reason_for_a_clean_process() -> None:
    before = clean_process_pid()
    loader = DataLoader(list(range(SAMPLES)), 4, num_workers=2)
    assert took(loader)[0] == list(range(SAMPLES))
    assert loader._lineage().choice.descent is WorkerOrigin.MAIN
    assert clean_process_pid() == before


@pytest.mark.usefixtures("context")
@pytest.mark.parametrize(
    "made",
    [
        lambda: DataLoader(Moves(), 4, num_workers=2),
        lambda: DataLoader(Moves(40), 4, num_workers=2),
        lambda: DataLoader(Moves(40), 4, num_workers=2, on_error="skip"),
        lambda: DataLoader(Moves(40), 4, num_workers=2, on_error="replace"),
        lambda: DataLoader(Moves(SAMPLES), 4, num_workers=2, collate_fn=collates),
        lambda: DataLoader(Moves(SAMPLES), 4, num_workers=2, worker_init_fn=begins),
    ],
)
def test_workers_that_use_the_accelerator_are_made_anew_in_a_clean_process(
    made: Callable[[], DataLoader[int]], caplog: pytest.LogCaptureFixture
) -> None:
    loader = made()
    assert took(loader)[0] == list(range(SAMPLES))
    assert loader._lineage().choice.descent is WorkerOrigin.CLEAN_PROCESS
    assert loader.faults == []
    (said,) = warned(caplog)
    assert "uses an accelerator, which a forked process cannot" in said


@pytest.mark.usefixtures("context")
def test_another_loader_of_such_datasets_begins_in_a_clean_process_and_one_of_others_does_not(
    caplog: pytest.LogCaptureFixture,
) -> None:
    for _ in range(3):
        loader = DataLoader(Moves(), 4, num_workers=1)
        assert took(loader)[0] == list(range(SAMPLES))
    assert len(warned(caplog)) == 1
    other = DataLoader(Needs(SAMPLES), 4, num_workers=1)
    assert took(other)[0] == list(range(SAMPLES))
    assert other._lineage().choice.descent is WorkerOrigin.MAIN


@pytest.mark.usefixtures("context")
def test_where_that_cannot_be_the_error_is_torchs_with_the_remedy() -> None:
    with pytest.raises(RuntimeError, match="Cannot re-initialize CUDA") as caught:
        took(DataLoader(Moves(), 4, num_workers=2, multiprocessing_context="fork"))
    assert any("Load on the CPU" in note for note in caught.value.__notes__)


# ---- at the very moment of a fork ----------------------------------------------------------------


def test_a_thread_that_begins_to_run_just_before_the_fork_is_noticed(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """Parked when the loop began, and inside of a `with` when the fork comes."""
    go, holds, done = threading.Event(), threading.Event(), threading.Event()
    lock = threading.Lock()

    def work() -> None:
        go.wait()
        with lock:
            holds.set()
            done.wait()

    thread = threading.Thread(target=work, name="late")
    thread.start()
    look = threads_at_fork._Check.look

    def later(self: Any) -> None:
        go.set()
        holds.wait()
        look(self)

    monkeypatch.setattr(threads_at_fork._Check, "look", later)
    try:
        loader = DataLoader(list(range(SAMPLES)), 4, num_workers=2)
        assert took(loader)[0] == list(range(SAMPLES))
        choice = loader._lineage().choice
        assert (
            choice.descent is WorkerOrigin.CLEAN_PROCESS
            and "(late: it is inside a `with`" in choice.why
        )
    finally:
        done.set()
        thread.join()
    assert warned(caplog) == []


class Numbered:
    """A dataset that tells which number its worker has among the program's processes."""

    def __len__(self) -> int:
        return SAMPLES

    def __getitem__(self, index: int) -> tuple[int, int]:
        return index, multiprocessing.current_process()._identity[0]


WORKERS = 4


@pytest.mark.parametrize("safe", range(WORKERS + 2))
def test_whichever_fork_is_not_safe_the_epoch_is_whole_and_workers_have_their_numbers(
    safe: int, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """So many forks are safe, then none: of the first workers, or of the zygote after them."""
    answers: list[str] = []

    def answer(*_: Any) -> str:
        answers.append("" if len(answers) < safe else "a thread runs")
        return answers[-1]

    monkeypatch.setattr(fork_hazards, "unsafe_now", answer)
    first = multiprocessing.process._process_counter
    begin = int(repr(first)[6:-1])
    idle = threading.Event()
    thread = threading.Thread(target=idle.wait)
    thread.start()
    try:
        wait_until_parked(thread)
        dataset: Any = Numbered()
        loader: DataLoader[Any] = DataLoader(dataset, 2, num_workers=WORKERS)
        loader._limits = other_limits(
            forking={"looks": 1},
            starting={"first_workers_cpu_s": PATIENCE_S},  # all are forked here, however slowly
        )
        got = [(int(i), int(n)) for batch in loader for i, n in zip(*batch, strict=True)]
    finally:
        idle.set()
        thread.join()
    # One look for each worker, and one for the zygote: of the last `safe` all are safe.
    assert len(answers) == min(safe + 1, WORKERS + 1)
    unsafe = any(answers)
    assert unsafe == (safe <= WORKERS)
    assert loader._lineage().choice.descent is (
        WorkerOrigin.CLEAN_PROCESS if unsafe else WorkerOrigin.MAIN
    )
    assert [index for index, _ in got] == list(range(SAMPLES))
    assert {number for _, number in got} <= {begin + at for at in range(WORKERS)}
    assert loader.faults == [] and warned(caplog) == []
    if safe != WORKERS:  # by the time of the zygote, workers may have brought a batch
        assert "lost" not in str(loader.explain())


def test_a_look_that_fails_is_a_reason_for_a_clean_process(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    # (An error that comes from code of the program's, a handler of a signal, is its affair.)
    monkeypatch.setattr(fork_hazards, "unsafe_now", functools.partial(divmod, 1, 0))
    idle = threading.Event()
    thread = threading.Thread(target=idle.wait)
    thread.start()
    try:
        wait_until_parked(thread)
        loader = DataLoader(list(range(SAMPLES)), 4, num_workers=2)
        assert took(loader)[0] == list(range(SAMPLES))
        assert loader._lineage().choice.descent is WorkerOrigin.CLEAN_PROCESS
    finally:
        idle.set()
        thread.join()


class Reserved(ThreadPoolExecutor):
    """An executor that has something else where another has its threads."""

    _threads = 4

    def __init__(self) -> None:
        pass


def test_odd_objects_in_a_dataset_do_not_break_the_look() -> None:
    idle = threading.Event()
    thread = threading.Thread(target=idle.wait)
    thread.start()
    try:
        dataset: Any = Needs(SAMPLES)
        dataset.pool = Reserved()
        loader: DataLoader[int] = DataLoader(dataset, 4, num_workers=2)
        assert took(loader)[0] == list(range(SAMPLES))
    finally:
        idle.set()
        thread.join()


def test_a_lock_of_the_main_thread_is_noticed_where_another_thread_loops() -> None:
    dataset: Any = Needs(0)
    loader: DataLoader[int] = DataLoader(dataset, 4, num_workers=2)
    got: list[int] = []
    with HIDDEN[40][0]:
        thread = threading.Thread(target=lambda: got.extend(took(loader)[0]))
        thread.start()
        thread.join(PATIENCE_S)
    assert got == list(range(SAMPLES))
    choice = loader._lineage().choice
    assert choice.descent is WorkerOrigin.CLEAN_PROCESS and "the main thread" in choice.why


def test_a_program_whose_workers_have_handlers_of_signals_is_saved_as_well() -> None:
    """faulthandler's, which Python does not list, are still there in a worker."""
    faulthandler.register(signal.SIGUSR1)
    try:
        loader: DataLoader[int] = DataLoader(Needs(20), 4, num_workers=2)
        with writer():
            got, longest_s = took(loader)
    finally:
        faulthandler.unregister(signal.SIGUSR1)
    assert got == list(range(SAMPLES)) and longest_s < 5 * HELD_S


def test_epochs_beside_threads_that_come_and_go_are_whole() -> None:
    """Threads that take locks of the dataset's, wait and run, in random order."""
    dice, done = random.Random(7), threading.Event()
    locks = [threading.Lock() for _ in range(3)]

    class Locked:
        def __init__(self) -> None:
            self.locks = locks

        def __len__(self) -> int:
            return SAMPLES

        def __getitem__(self, index: int) -> int:
            with self.locks[index % 3]:
                return index

    def work(seed: int) -> None:
        own = random.Random(seed)
        while not done.is_set():
            with own.choice(locks):
                time.sleep(own.choice((0.0, 0.001, 0.02)))
            done.wait(own.choice((0.0, 0.002, 0.05)))

    threads = [threading.Thread(target=work, args=(dice.random(),)) for _ in range(3)]
    for each in threads:
        each.start()
    try:
        for _ in range(6):
            loader = DataLoader(Locked(), 4, num_workers=2, timeout=PATIENCE_S)
            assert took(loader)[0] == list(range(SAMPLES))
    finally:
        done.set()
        for each in threads:
            each.join()
