"""Programs whose fork would freeze: another thread holds a lock that a worker needs."""

from __future__ import annotations

import asyncio
import contextlib
import ctypes
import gc
import logging
import multiprocessing
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
import torch

from antifreeze import DataLoader
from antifreeze._core.fork_or_clean import Wish, WorkerOrigin
from antifreeze._processes.fork_safety import fork_hazards, native_thread_pools
from antifreeze._processes.starting import start_method
from antifreeze._processes.starting.start_method import StartMethod

from ..patience import PATIENCE_S
from .clean import another_thread, is_clean
from .parked import wait_until_parked
from .programs import finish, program

LOCK = threading.Lock()
LIBC = ctypes.CDLL(None)


class Quiet(logging.Handler):
    """A handler that writes nothing, and has a lock."""

    def emit(self, record: logging.LogRecord) -> None:
        pass


HANDLER = Quiet()


@contextlib.contextmanager
def held(take: Callable[[], object], give: Callable[[], object]) -> Iterator[None]:
    """Have another thread hold something."""
    taken, done = threading.Event(), threading.Event()

    def hold() -> None:
        take()
        taken.set()
        done.wait()
        give()

    thread = threading.Thread(target=hold)
    thread.start()
    taken.wait()
    try:
        yield
    finally:
        done.set()
        thread.join()


class Needs:
    """A dataset that needs a lock for every sample."""

    def __init__(self, take: Callable[[], object], give: Callable[[], object]) -> None:
        self.take, self.give = take, give

    def __len__(self) -> int:
        return 8

    def __getitem__(self, index: int) -> int:
        self.take()
        self.give()
        return index


LOCKS: dict[str, tuple[Callable[[], object], Callable[[], object]]] = {
    "a lock of a module": (lambda: LOCK.acquire(), lambda: LOCK.release()),
    "a lock of logging": (lambda: HANDLER.acquire(), lambda: HANDLER.release()),
    "logging's own lock": (lambda: logging._lock.acquire(), lambda: logging._lock.release()),
}


@pytest.mark.parametrize("what", LOCKS)
def test_a_lock_that_another_thread_holds_stops_no_worker(what: str) -> None:
    take, give = LOCKS[what]
    loader = DataLoader(Needs(take, give), 2, num_workers=2, timeout=PATIENCE_S)
    with held(take, give):
        iterator = iter(loader)
        assert is_clean_soon(iterator)
        assert torch.cat(list(iterator)).tolist() == list(range(8))


class Draws:
    """A dataset that needs a lock inside torch: that of its generator."""

    def __len__(self) -> int:
        return 8

    def __getitem__(self, index: int) -> int:
        torch.rand(2)
        return index


def test_a_lock_inside_a_c_library_that_another_thread_holds_stops_no_worker() -> None:
    done = threading.Event()
    room = torch.empty(20_000_000)

    def draw() -> None:
        while not done.is_set():
            room.normal_()  # holds the lock while it fills that

    thread = threading.Thread(target=draw)
    thread.start()
    try:
        for _ in range(3):
            loader = DataLoader(Draws(), 2, num_workers=2, timeout=PATIENCE_S)
            iterator = iter(loader)
            assert is_clean_soon(iterator)
            assert torch.cat(list(iterator)).tolist() == list(range(8))
    finally:
        done.set()
        thread.join()


class Locked:
    """A dataset with locks of its own."""

    def __init__(self) -> None:
        self.lock, self.again = threading.Lock(), threading.RLock()
        self.bounded, self.condition = threading.BoundedSemaphore(2), threading.Condition()

    def __len__(self) -> int:
        return 8

    def __getitem__(self, index: int) -> int:
        with self.lock, self.again, self.bounded, self.bounded, self.condition:
            return index


@pytest.mark.parametrize("name", ["lock", "again", "bounded", "condition"])
def test_a_lock_of_the_dataset_that_another_thread_holds_arrives_free(
    name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(start_method, "_stuck", [])  # one of two is taken: workers turn
    dataset = Locked()
    lock = getattr(dataset, name)
    with held(lock.acquire, lock.release):
        loader = DataLoader(dataset, 2, num_workers=2, timeout=PATIENCE_S)
        assert torch.cat(list(loader)).tolist() == list(range(8))
        assert not lock.acquire(blocking=False) or name == "bounded"  # one of two is left


def test_a_thread_pool_that_is_idle_is_forked_beside() -> None:
    with ThreadPoolExecutor(3) as pool:
        assert list(pool.map(str, range(3))) == ["0", "1", "2"]
        for thread in pool._threads:
            wait_until_parked(thread)
        iterator = iter(DataLoader(Locked(), 2, num_workers=2))
        assert not is_clean_soon(iterator)
        assert torch.cat(list(iterator)).tolist() == list(range(8))


def test_an_event_loop_in_another_thread_that_is_idle_is_forked_beside() -> None:
    loop = asyncio.new_event_loop()
    thread = threading.Thread(target=loop.run_forever)
    thread.start()
    wait_until_parked(thread)
    try:
        iterator = iter(DataLoader(Locked(), 2, num_workers=2))
        assert not is_clean_soon(iterator)
        assert torch.cat(list(iterator)).tolist() == list(range(8))
    finally:
        loop.call_soon_threadsafe(loop.stop)
        thread.join()
        loop.close()


def test_inside_a_running_event_loop() -> None:
    async def main() -> list[int]:
        got: list[int] = []
        for batch in DataLoader(Locked(), 2, num_workers=2):
            got += batch.tolist()
            await asyncio.sleep(0)
        return got

    assert asyncio.run(main()) == list(range(8))


def test_a_garbage_iterator_of_another_loader_at_the_time_of_the_fork() -> None:
    other = DataLoader(Locked(), num_workers=1)
    cycle: list[Any] = [iter(other)]
    cycle.append(cycle)
    next(cycle[0])
    del cycle  # nobody has it, and nobody has collected it
    before = gc.get_threshold()
    gc.set_threshold(1, 1, 1)  # whoever runs Python next collects it, in whatever process
    try:
        loader = DataLoader(Locked(), 2, num_workers=2)
        assert torch.cat(list(loader)).tolist() == list(range(8))
    finally:
        gc.set_threshold(*before)


def test_a_thread_that_comes_up_between_two_epochs_is_noticed() -> None:
    loader = DataLoader(Locked(), 2, num_workers=1)
    list(loader)
    assert loader._lineage().choice.descent is WorkerOrigin.MAIN
    with another_thread():
        iterator = iter(loader)
        assert is_clean_soon(iterator)
        list(iterator)
    assert loader._lineage().choice.descent is WorkerOrigin.CLEAN_PROCESS  # kept from now on


def test_a_fork_that_was_asked_for_is_a_fork() -> None:
    with another_thread():
        loader = DataLoader(Locked(), 2, num_workers=1, multiprocessing_context="fork")
        iterator = iter(loader)
        assert not is_clean_soon(iterator)
        list(iterator)


BY_START_METHOD = """
    {before}
    import threading
    lock, taken = threading.Lock(), threading.Event()

    class Locked:
        def __len__(self):
            return 2
        def __getitem__(self, index):
            return index, lock.locked()

    def hold():
        with lock:
            taken.set()
            threading.Event().wait()

    {after}
    threading.Thread(target=hold, daemon=True).start()
    taken.wait()
    loader = DataLoader(Locked(), None, num_workers=1)
    list(loader)
    say(loader._lineage().choice.descent.value)
"""
CHOSEN = "import {}; {}.set_start_method({!r}{})"


@pytest.mark.parametrize("module", ["multiprocessing", "torch.multiprocessing"])
@pytest.mark.parametrize("before", [True, False])
def test_a_start_method_that_the_program_has_set_is_a_choice(
    tmp_path: Path, module: str, before: bool
) -> None:
    chosen = CHOSEN.format(module, module, "fork", "")
    code = BY_START_METHOD.format(before="" if before else chosen, after=chosen if before else "")
    with program(tmp_path, code) as process:
        assert finish(process) == (0, "main\n", "")


def test_also_when_it_was_fixed_before_and_is_set_by_force(tmp_path: Path) -> None:
    chosen = CHOSEN.format("multiprocessing", "multiprocessing", "fork", ", force=True")
    with program(tmp_path, BY_START_METHOD.format(before=FIXED, after=chosen)) as process:
        assert finish(process) == (0, "main\n", "")


FIXED = "import multiprocessing; multiprocessing.Lock()"
EARLIER = """
{}
from antifreeze import DataLoader
from antifreeze._processes.starting.explicit_start_method import is_chosen
print(is_chosen())
"""


@pytest.mark.parametrize(
    ("earlier", "chosen"),
    [(CHOSEN.format(*2 * ["multiprocessing"], "fork", ""), True), (FIXED, False), ("", False)],
)
def test_also_before_antifreeze_is_imported(earlier: str, chosen: bool) -> None:
    code = EARLIER.format(earlier)
    said = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert said.stdout == f"{chosen}\n"


@pytest.mark.parametrize("before", [True, False])
def test_a_default_that_was_only_fixed_is_no_choice(tmp_path: Path, before: bool) -> None:
    code = BY_START_METHOD.format(before=FIXED if before else "", after="" if before else FIXED)
    with program(tmp_path, code) as process:
        assert finish(process) == (0, "clean process\n", "")


# ---- what is no hazard ---------------------------------------------------------------------------


def choice_now() -> Any:
    return StartMethod(Wish.NONE).choice


def test_a_program_with_one_thread_forks() -> None:
    assert choice_now().is_plain, choice_now()


QUIET = """
    import numpy as np
    from antifreeze._processes.starting.start_method import StartMethod
    from antifreeze._core.fork_or_clean import Wish
    torch.set_num_threads(4)
    torch.rand(2_000_000).exp()
    weight = torch.rand(64, 64, requires_grad=True)
    (weight @ weight).sum().backward()
    np.ones((800, 800)) @ np.ones((800, 800))
    time.sleep(0.5)
    say(len(os.listdir("/proc/self/task")) > 1, StartMethod(Wish.NONE).choice)
"""


def test_pools_of_torch_numpy_and_backward_are_no_hazard(tmp_path: Path) -> None:
    with program(tmp_path, QUIET) as process:
        code, out, err = finish(process)
    assert (code, err) == (0, "")
    assert out.startswith("True Choice(descent=<WorkerOrigin.MAIN: 'main'>, why='',")


def test_threads_of_ours_and_of_a_progress_bar_are_no_hazard() -> None:
    class TMonitor(threading.Thread):
        """tqdm's has this name."""

    done = threading.Event()
    beside = TMonitor(target=done.wait)
    beside.start()
    try:
        other = iter(DataLoader(Locked(), 2, num_workers=1, pin_memory=False))
        next(other)
        assert any(thread.name.startswith(fork_hazards.OURS) for thread in threading.enumerate())
        assert choice_now().is_plain, choice_now()
        list(other)
    finally:
        done.set()
        beside.join()


def test_the_thread_of_a_queue_of_multiprocessing_is_no_hazard() -> None:
    queue: multiprocessing.Queue[int] = multiprocessing.Queue()
    queue.put(1)
    try:
        assert any(thread.name == "QueueFeederThread" for thread in threading.enumerate())
        assert choice_now().is_plain, choice_now()
        assert len(list(DataLoader(list(range(8)), num_workers=2))) == 8
    finally:
        assert queue.get(timeout=30) == 1
        queue.close()
        queue.join_thread()


def test_a_thread_of_a_native_library_that_sleeps_is_no_hazard() -> None:
    # A thread that Python does not know: started by the C library.
    started = ctypes.CFUNCTYPE(ctypes.c_void_p, ctypes.c_void_p)
    number = ctypes.c_ulong()
    nap = ctypes.cast(LIBC.sleep, started)
    assert LIBC.pthread_create(ctypes.byref(number), None, nap, ctypes.c_void_p(2)) == 0
    time.sleep(0.2)  # until it sleeps
    assert choice_now().is_plain, choice_now()
    assert LIBC.pthread_join(number, None) == 0


def test_a_thread_of_a_native_library_that_runs_is_named() -> None:
    # It fills memory for seconds.
    started = ctypes.CFUNCTYPE(ctypes.c_void_p, ctypes.c_void_p)
    count = 2 + native_thread_pools.blas_threads()  # one that has no name is taken for one of these
    numbers = [ctypes.c_ulong() for _ in range(count)]
    rooms = [ctypes.create_string_buffer(b"x" * (1 << 24)) for _ in range(count)]
    busy = ctypes.cast(LIBC.strfry, started)
    for number, room in zip(numbers, rooms, strict=True):
        assert LIBC.pthread_create(ctypes.byref(number), None, busy, room) == 0
    try:
        assert "of a native library" in choice_now().why
    finally:
        for number in numbers:
            assert LIBC.pthread_join(number, None) == 0


def test_the_background_thread_of_an_allocator_is_no_hazard() -> None:
    # As pyarrow has one, and so pandas.
    started = ctypes.CFUNCTYPE(ctypes.c_void_p, ctypes.c_void_p)
    number = ctypes.c_ulong()
    nap = ctypes.cast(LIBC.sleep, started)
    assert LIBC.pthread_create(ctypes.byref(number), None, nap, ctypes.c_void_p(2)) == 0
    assert LIBC.pthread_setname_np(number, b"jemalloc_bg_thd") == 0
    time.sleep(0.2)  # until it sleeps
    assert choice_now().is_plain, choice_now()
    assert LIBC.pthread_join(number, None) == 0


class Opened:
    """A dataset that takes its time to be opened, busy or not."""

    def __init__(self, *, busy: bool) -> None:
        self.busy = busy

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__ = state
        clock = time.process_time if self.busy else time.monotonic
        until = clock() + 1.5
        while clock() < until:
            time.sleep(0 if self.busy else 0.1)

    def __len__(self) -> int:
        return 2

    def __getitem__(self, index: int) -> int:
        return index


@pytest.mark.parametrize("busy", [True, False])
def test_a_healthy_run_from_a_clean_process_is_silent_however_dear_the_opening(
    busy: bool, caplog: pytest.LogCaptureFixture
) -> None:
    with another_thread():
        list(DataLoader(Opened(busy=busy), num_workers=1))
    said = [record.getMessage() for record in caplog.records if record.levelname != "INFO"]
    assert said == []


def test_where_workers_come_from_is_logged_once_a_program(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(start_method, "_logged", set())
    with another_thread(), caplog.at_level(logging.INFO, "antifreeze"):
        for _ in range(2):
            list(DataLoader(Locked(), num_workers=1))
    (said,) = [r.getMessage() for r in caplog.records if "clean process" in r.getMessage()]
    assert "another thread runs here (somebody else: it is inside a `with` clean.py:" in said


def test_looking_takes_no_time() -> None:
    taken = []
    for _ in range(20):
        began = time.perf_counter()
        fork_hazards.program()
        taken.append(time.perf_counter() - began)
    assert sorted(taken)[10] < 5 * 0.001, taken


def is_clean_soon(iterator: Any) -> bool:
    """Say whether the workers descend from the clean process, as soon as they are there."""
    assert [worker.pid for worker in iterator._workers]
    return is_clean(iterator)
