"""Which lock a worker waits for, and who holds it; how many permits a semaphore arrives with."""

from __future__ import annotations

import contextlib
import ctypes
import gc
import sys
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

from antifreeze._processes.fork_safety.lock_search import (
    holder_of,
    lock_in_words,
    path_to,
    semaphore_in_words,
)
from antifreeze._processes.replication.kinds import semaphores

HELD = {"by name": [None, threading.Lock()]}


class Slotted:
    __slots__ = ("lock",)

    def __init__(self) -> None:
        self.lock = threading.Lock()


class Classwide:
    lock = threading.Lock()
    deep = {"locks": [threading.RLock()]}


class Holder:
    def __init__(self) -> None:
        self.slotted = [Slotted()]
        self.condition = threading.Condition()
        self.far: dict[Any, Any] = dict.fromkeys(range(100))
        self.far["last"] = (threading.Lock(),)


def take(lock: Any) -> None:
    lock.acquire()


@contextlib.contextmanager
def another_thread(act: Callable[[threading.Event], None], name: str) -> Iterator[None]:
    """Run something in a thread that then waits."""
    taken, done = threading.Event(), threading.Event()

    def run() -> None:
        act(taken)
        done.wait()

    thread = threading.Thread(target=run, name=name)
    thread.start()
    taken.wait()
    try:
        yield
    finally:
        done.set()
        thread.join()


def test_a_path_leads_from_the_dataset_a_module_or_a_class() -> None:
    dataset = Holder()
    named = {"dataset": dataset}
    assert path_to(dataset.slotted[0].lock, named) == "dataset.slotted[0].lock"
    assert path_to(dataset.condition._lock, named) == "dataset.condition._lock"
    assert path_to(dataset.far["last"][0], named) == "dataset.far['last'][0]"
    gc.unfreeze()
    assert path_to(HELD["by name"][1], named) == f"{__name__}.HELD['by name'][1]"
    assert path_to(Classwide.lock, named) == f"{__name__}.Classwide.lock"
    assert path_to(Classwide.deep["locks"][0], named) == f"{__name__}.Classwide.deep['locks'][0]"
    assert path_to(threading.Lock(), named) == ""


def test_a_long_path_is_shortened() -> None:
    lock: Any = threading.Lock()
    dataset = {"n" * 200: lock}
    path = path_to(lock, {"dataset": dataset})
    assert path.startswith("dataset['nnnn") and " ... " in path and path.endswith("nn']")
    assert len(path) < 130


def test_a_thread_holds_a_lock_if_it_shows_it() -> None:
    dataset = Holder()
    lock = dataset.far["last"][0]

    assert holder_of(lock, "dataset.far['last'][0]") == ""

    done, up = threading.Event(), threading.Event()

    def holds() -> None:
        mine = dataset.far["last"][0]
        mine.acquire()
        up.set()
        done.wait()
        mine.release()

    thread = threading.Thread(target=holds, name="writer")
    thread.start()
    up.wait()
    with another_thread(lambda taken: taken.set(), "other"):
        assert holder_of(lock, "dataset.far['last'][0]") == "writer"
    done.set()
    thread.join()


@pytest.mark.skipif(sys.version_info >= (3, 13), reason="locks of Python 3.13 wait elsewhere")
def test_a_lock_is_named_by_its_address() -> None:
    dataset = Holder()
    named = {"dataset": dataset}
    gc.freeze()
    paths = {
        "dataset.far['last'][0]": dataset.far["last"][0],
        "dataset.slotted[0].lock": dataset.slotted[0].lock,
        f"{__name__}.HELD['by name'][1]": HELD["by name"][1],
        f"{__name__}.Classwide.deep['locks'][0]": Classwide.deep["locks"][0],
    }
    for _ in range(2):  # frozen, and not
        for path, lock in paths.items():
            address = ctypes.c_void_p.from_address(id(lock) + 16).value
            assert address is not None
            assert lock_in_words({address}, named) == path
        gc.unfreeze()
    assert lock_in_words({0x7F}, named) == ""


def test_a_semaphore_is_named_if_only_one_has_no_permit_left() -> None:
    class Gated:
        def __init__(self) -> None:
            self.gates = [threading.Semaphore(1), threading.Semaphore(1)]
            self.free = threading.Semaphore(3)

    dataset = Gated()
    named = {"dataset": dataset}
    with ThreadPoolExecutor(1) as pool:
        pool.submit(int).result()
        assert semaphore_in_words(named) == ""
        dataset.gates[1].acquire()
        assert semaphore_in_words(named) == "the semaphore dataset.gates[1]"
        dataset.gates[0].acquire()
        assert semaphore_in_words(named) == ""


def test_a_permit_that_a_thread_holds_is_sent_along() -> None:
    gate, signal = threading.Semaphore(2), threading.Semaphore(0)
    taken, done = threading.Event(), threading.Event()

    def holds() -> None:
        with gate:
            gate.acquire()
            try:
                taken.set()
                done.wait()
            finally:
                gate.release()

    thread = threading.Thread(target=holds)
    thread.start()
    taken.wait()
    try:
        assert semaphores.permits(gate) == 2
        assert semaphores.permits(signal) == 0
    finally:
        done.set()
        thread.join()
    assert semaphores.permits(gate) == 2


def test_a_signal_gets_a_permit_only_once_a_worker_has_frozen() -> None:
    used_up, waited_for = threading.Semaphore(0), threading.Semaphore(0)
    waiter = threading.Thread(target=take, args=(waited_for,))
    waiter.start()
    try:
        while not waited_for._cond._waiters:
            pass
        assert semaphores.permits(used_up) == 0
        semaphores.note_freeze()
        assert semaphores.permits(used_up) == 1
        assert semaphores.permits(waited_for) == 0
    finally:
        semaphores.forget_freeze()
        waited_for.release()
        waiter.join()
