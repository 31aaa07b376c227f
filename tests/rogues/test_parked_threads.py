"""Which threads are parked, by their frames: those that wait in the standard library."""

from __future__ import annotations

import asyncio
import concurrent.futures
import contextlib
import functools
import gc
import io
import logging
import multiprocessing
import multiprocessing.pool
import os
import queue
import random
import select
import socket
import socketserver
import subprocess
import sys
import tempfile
import threading
import time
import weakref
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from antifreeze import DataLoader
from antifreeze._processes.fork_safety import fork_hazards
from antifreeze._processes.fork_safety.parked_threads import running
from antifreeze._processes.fork_safety.reachable_objects import lock_at, reached_from

from ..patience import PATIENCE_S
from .parked import wait_until_at_rest, wait_until_parked

LOCK, OTHER = threading.Lock(), threading.RLock()


class Counting:
    """A context of the program's that does nothing but count."""

    entered = 0

    def __enter__(self) -> Counting:
        self.entered += 1
        return self

    def __exit__(self, *given: object) -> None:
        self.entered -= len(given) // 3


class Locking(Counting):
    """One that takes a lock."""

    def __init__(self, lock: Any) -> None:
        self.lock = lock

    def __enter__(self) -> Counting:
        self.lock.acquire()
        return super().__enter__()

    def __exit__(self, *given: object) -> None:
        self.lock.release()


class Stage:
    """What threads wait for, and how they are told to end."""

    def __init__(self) -> None:
        self.done = threading.Event()
        self.queue: queue.Queue[Any] = queue.Queue()
        self.simple: queue.SimpleQueue[Any] = queue.SimpleQueue()
        self.cond = threading.Condition()
        self.lock = threading.Lock()
        self.here, self.there = socket.socketpair()
        self.loop = asyncio.new_event_loop()

    def end(self) -> None:
        self.done.set()
        for _ in range(3):
            self.queue.put(None)
            self.simple.put(None)
        with self.cond:
            self.cond.notify_all()
        self.there.send(b"all")
        with contextlib.suppress(RuntimeError):
            self.loop.call_soon_threadsafe(self.loop.stop)

    def close(self) -> None:
        self.here.close()
        self.there.close()
        self.loop.close()

    # ---- parked ------------------------------------------------------------------------------

    def event(self) -> None:
        self.done.wait(PATIENCE_S)

    def condition(self) -> None:
        with self.cond:
            self.cond.wait(PATIENCE_S)

    def queued(self) -> None:
        self.queue.get()

    def queued_as_tensorboard_does(self) -> None:
        data = None
        try:
            data = self.queue.get(True, PATIENCE_S)
        except queue.Empty:
            pass
        finally:
            if data:
                self.queue.task_done()

    def simply_queued(self) -> None:
        self.simple.get()

    def sleeps(self) -> None:
        while not self.done.is_set():
            time.sleep(0.5)

    def sleeps_often(self) -> None:
        for _ in range(100):  # the interpreter has specialised the call by then
            time.sleep(0.0001)
        while not self.done.is_set():
            time.sleep(0.02)

    def receives(self) -> None:
        self.here.recv(1)

    def selects(self) -> None:
        select.select([self.here], [], [])

    def polls(self) -> None:
        poller = select.poll()
        poller.register(self.here, select.POLLIN)
        poller.poll()

    def event_loop(self) -> None:
        self.loop.run_forever()

    def event_loop_as_wandb_has_it(self) -> None:
        async def until_done() -> None:
            while not self.done.is_set():
                await asyncio.sleep(0.5)

        with contextlib.suppress(ValueError):
            asyncio.run(until_done())

    def event_loop_that_has_turned_often(self) -> None:
        async def until_done() -> None:
            for _ in range(200):
                await asyncio.sleep(0.0001)
            while not self.done.is_set():
                await asyncio.sleep(0.02)

        asyncio.run(until_done())

    def queue_that_was_read_often(self) -> None:
        for _ in range(100):
            self.queue.put(1)
            self.queue.get()
        self.queue.get()

    def reads_a_file_meanwhile(self) -> None:
        with open("/dev/null"):
            self.done.wait(PATIENCE_S)

    def catches(self) -> None:
        try:
            try:
                self.done.wait(PATIENCE_S)
            except ValueError:
                time.sleep(0)
        except (KeyError, OSError):
            pass

    def in_a_context_that_logs(self) -> None:
        @contextlib.contextmanager
        def timed() -> Iterator[None]:
            began = time.monotonic()
            try:
                yield
            finally:
                logging.getLogger(__name__).debug("%.3f s", time.monotonic() - began)

        with timed():
            self.done.wait(PATIENCE_S)

    def in_a_context_that_counts(self) -> None:
        with Counting():
            self.done.wait(PATIENCE_S)

    def in_a_stack_of_files(self) -> None:
        with contextlib.ExitStack() as stack:
            stack.enter_context(open("/dev/null"))
            stack.callback(print, end="")
            self.done.wait(PATIENCE_S)

    def in_a_stack_with_nothing(self) -> None:
        with contextlib.ExitStack() as stack:
            self.done.wait(PATIENCE_S)
            stack.pop_all()

    def in_files(self) -> None:
        with tempfile.NamedTemporaryFile() as named, tempfile.TemporaryFile():
            self.done.wait(PATIENCE_S)
            named.flush()

    def closes_a_file_in_the_end(self) -> None:
        file = open("/dev/null")  # noqa: SIM115
        try:
            self.done.wait(PATIENCE_S)
        finally:
            file.close()

    def reads_the_output_of_a_program(self) -> None:
        process = subprocess.Popen(["sleep", "1"], stdout=subprocess.PIPE)
        assert process.stdout is not None
        with process.stdout:
            for _ in process.stdout:
                pass
        process.wait()

    def polls_until_the_end(self) -> None:
        poller = select.epoll()
        try:
            poller.register(self.here, select.EPOLLIN)
            poller.poll()
        finally:
            poller.close()

    def in_a_lock_that_nobody_else_has(self) -> None:
        with threading.Lock():
            self.done.wait(PATIENCE_S)

    # ---- not -----------------------------------------------------------------------------------

    def holds(self) -> None:
        with self.lock:
            self.done.wait(PATIENCE_S)

    def holds_by_hand(self) -> None:
        self.lock.acquire()
        try:
            self.done.wait(PATIENCE_S)
        finally:
            self.lock.release()

    def holds_one_and_waits_for_another(self) -> None:
        with self.lock, self.cond:
            self.cond.wait(PATIENCE_S)

    def holds_further_out(self) -> None:
        with self.lock:
            self.catches()

    def spins(self) -> None:
        while not self.done.is_set():
            sum(range(1000))

    def waits_for_a_lock(self) -> None:
        with LOCK:
            pass

    def in_a_context_of_its_own(self) -> None:
        @contextlib.contextmanager
        def anything() -> Iterator[None]:
            self.lock.acquire()
            yield
            self.lock.release()

        with anything():
            self.done.wait(PATIENCE_S)

    def in_a_context_with_a_class(self) -> None:
        with Locking(self.lock):
            self.done.wait(PATIENCE_S)

    def in_a_stack_with_a_lock(self) -> None:
        with contextlib.ExitStack() as stack:
            stack.enter_context(self.lock)
            self.done.wait(PATIENCE_S)

    def in_a_stack_that_releases(self) -> None:
        with contextlib.ExitStack() as stack:
            self.lock.acquire()
            stack.callback(self.lock.release)
            self.done.wait(PATIENCE_S)

    def in_a_stack_that_was_changed(self) -> None:
        with contextlib.ExitStack() as stack:
            stack.enter_context(self.lock)
            kept, stack = stack, contextlib.ExitStack()
            self.done.wait(PATIENCE_S)
        kept.close()

    def in_the_lock_of_a_function(self) -> None:
        with self.get_lock():
            self.done.wait(PATIENCE_S)

    def get_lock(self) -> Any:
        return self.lock

    def computes(self) -> None:
        while not self.done.is_set():
            sorted([random.random() for _ in range(50_000)])


# These wake up now and then; the others come to rest, and stay there.
RESTLESS = {
    Stage.sleeps,
    Stage.sleeps_often,
    Stage.event_loop_as_wandb_has_it,
    Stage.event_loop_that_has_turned_often,
}
PARKED: list[Callable[[Stage], None]] = [
    Stage.event,
    Stage.condition,
    Stage.queued,
    Stage.queued_as_tensorboard_does,
    Stage.simply_queued,
    Stage.sleeps,
    Stage.sleeps_often,
    Stage.receives,
    Stage.selects,
    Stage.polls,
    Stage.event_loop,
    Stage.event_loop_as_wandb_has_it,
    Stage.event_loop_that_has_turned_often,
    Stage.queue_that_was_read_often,
    Stage.reads_a_file_meanwhile,
    Stage.catches,
    Stage.in_a_context_that_logs,
    Stage.in_a_context_that_counts,
    Stage.in_a_stack_of_files,
    Stage.in_a_stack_with_nothing,
    Stage.in_files,
    Stage.closes_a_file_in_the_end,
    Stage.reads_the_output_of_a_program,
    Stage.polls_until_the_end,
    Stage.in_a_lock_that_nobody_else_has,
]
RUNNING: list[Callable[[Stage], None]] = [
    Stage.holds,
    Stage.holds_by_hand,
    Stage.holds_one_and_waits_for_another,
    Stage.holds_further_out,
    Stage.spins,
    Stage.waits_for_a_lock,
    Stage.in_a_context_of_its_own,
    Stage.in_a_context_with_a_class,
    Stage.in_a_stack_with_a_lock,
    Stage.in_a_stack_that_releases,
    Stage.in_a_stack_that_was_changed,
    Stage.in_the_lock_of_a_function,
    Stage.computes,
]


@contextlib.contextmanager
def on_stage(act: Callable[[Stage], None]) -> Iterator[threading.Thread]:
    stage = Stage()
    with LOCK:
        thread = threading.Thread(target=act, args=(stage,), name=act.__name__)
        thread.start()
        try:
            yield thread
        finally:
            stage.end()
    thread.join(PATIENCE_S)
    stage.close()
    assert not thread.is_alive()


def verdicts(thread: threading.Thread, seconds: float) -> list[str]:
    """Look at a thread again and again."""
    found, until = [], time.monotonic() + seconds
    while time.monotonic() < until:
        frame = sys._current_frames().get(thread.ident or 0)
        assert frame is not None
        found.append(running(frame))
        time.sleep(0.005)
    return found


@pytest.mark.parametrize("act", PARKED)
def test_what_waits_and_holds_nothing_is_parked(act: Callable[[Stage], None]) -> None:
    with on_stage(act) as thread:
        if act in RESTLESS:
            time.sleep(0.05)
            said = verdicts(thread, 0.2)
            assert said.count("") > len(said) / 2, said
        else:
            wait_until_at_rest(thread, 0.05)
            assert set(verdicts(thread, 0.2)) == {""}


@pytest.mark.parametrize("act", RUNNING)
def test_what_runs_or_may_hold_something_is_not(act: Callable[[Stage], None]) -> None:
    with on_stage(act) as thread:
        time.sleep(0.05)
        said = verdicts(thread, 0.2)
    assert "" not in said


def test_an_idle_executor_and_a_server_are_parked() -> None:
    class Nothing(socketserver.BaseRequestHandler):
        pass

    with (
        concurrent.futures.ThreadPoolExecutor(2) as pool,
        socketserver.TCPServer(("127.0.0.1", 0), Nothing) as server,
    ):
        pool.submit(int).result()
        serving = threading.Thread(target=server.serve_forever)
        serving.start()
        time.sleep(0.1)
        look = fork_hazards.program()
        server.shutdown()
        serving.join()
    assert look.threads == () and len(look.parked) >= 2, look


@contextlib.contextmanager
def idle_pool() -> Iterator[None]:
    with multiprocessing.get_context("spawn").Pool(1) as pool:
        assert pool.apply(int) == 0
        yield


@contextlib.contextmanager
def idle_pool_of_threads() -> Iterator[None]:
    with multiprocessing.pool.ThreadPool(2) as pool:
        assert pool.apply(int) == 0
        yield


@contextlib.contextmanager
def another_program(read: Callable[[Any], object]) -> Iterator[None]:
    """Have a thread wait for a program, or for what it says."""
    with subprocess.Popen(["cat"], stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        thread = threading.Thread(target=read, args=(process,))
        thread.start()
        try:
            yield
        finally:
            assert process.stdin is not None
            process.stdin.close()
            thread.join()


def reads_lines(process: Any) -> None:
    for _ in process.stdout:
        pass


def reads_lines_in_a_comprehension(process: Any) -> None:
    assert [line for line in process.stdout if line] == []


def reads_text(process: Any) -> None:
    said = io.TextIOWrapper(process.stdout)
    said.readline()
    said.detach()


def joins_a_thread(process: Any) -> None:
    thread = threading.Thread(target=waits_for_its_number, args=(process,))
    thread.start()
    thread.join()


def runs_another(process: Any) -> None:
    subprocess.run(["cat"], stdin=process.stdout, check=True)


def waits_for_it(process: Any) -> None:
    process.wait()


def waits_for_its_number(process: Any) -> None:
    os.waitid(os.P_PID, process.pid, os.WEXITED | os.WNOWAIT)


@contextlib.contextmanager
def another_loop() -> Iterator[None]:
    """Have a thread wait in a loop over a loader of ours."""
    done = multiprocessing.get_context("fork").Event()

    class Slow:
        def __len__(self) -> int:
            return 4

        def __getitem__(self, index: int) -> int:
            if index:
                done.wait()
            return index

    iterator = iter(DataLoader(Slow(), 1, num_workers=1))
    thread = threading.Thread(target=list, args=(iterator,))
    thread.start()
    try:
        yield
    finally:
        done.set()
        thread.join()


@contextlib.contextmanager
def a_queue_of_processes() -> Iterator[None]:
    tasks: Any = multiprocessing.get_context("fork").Queue()
    thread = threading.Thread(target=tasks.get)
    thread.start()
    try:
        yield
    finally:
        tasks.put(None)
        thread.join()
        tasks.close()
        tasks.join_thread()


@pytest.mark.parametrize(
    "idle",
    [
        idle_pool,
        idle_pool_of_threads,
        functools.partial(another_program, reads_lines),
        functools.partial(another_program, reads_lines_in_a_comprehension),
        functools.partial(another_program, reads_text),
        functools.partial(another_program, waits_for_it),
        functools.partial(another_program, joins_a_thread),
        functools.partial(another_program, runs_another),
        functools.partial(another_program, waits_for_its_number),
        another_loop,
        a_queue_of_processes,
    ],
)
def test_idle_parts_of_the_standard_library_and_loops_of_loaders_are_parked(idle: Any) -> None:
    with idle():
        give_up = time.monotonic() + PATIENCE_S
        while (look := fork_hazards.program()).threads or not look.parked:
            assert time.monotonic() < give_up, look
            time.sleep(0.02)
        time.sleep(0.1)
        for _ in range(20):
            look = fork_hazards.program()
            assert look.threads == () and look.parked, look
            time.sleep(0.005)


@pytest.mark.parametrize("how", ["readline()", "buffer.read()"])
def test_who_reads_standard_input_runs(how: str) -> None:
    """A worker closes it, and would wait for that."""
    program = """if True:
        import os, sys, threading, time
        from antifreeze._processes.fork_safety import fork_hazards as hazards
        def read():
            sys.stdin.READ
        threading.Thread(target=read, daemon=True).start()
        time.sleep(0.3)
        print(len(hazards.program().threads), flush=True)
        os._exit(0)
    """
    process = subprocess.Popen(
        [sys.executable, "-c", program.replace("READ", how)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    assert process.stdout is not None
    said = process.stdout.read(1)
    process.communicate("")
    assert said == "1"


def test_the_reason_names_the_line() -> None:
    with on_stage(Stage.holds) as thread:
        time.sleep(0.05)
        (said, *_) = verdicts(thread, 0.05)
    assert said.startswith("it is inside a `with` test_parked_threads.py:")
    assert said.endswith(", in holds")


def test_without_a_gil_every_thread_may_run(monkeypatch: pytest.MonkeyPatch) -> None:
    with on_stage(Stage.event) as thread:
        wait_until_parked(thread)
        monkeypatch.setattr(sys, "_is_gil_enabled", lambda: False, raising=False)
        (said, *_) = verdicts(thread, 0.02)
        assert said.startswith("it may run at any time, without a GIL; now threading.py:")
        assert fork_hazards.program().threads == (f"{thread.name}",)
        monkeypatch.setattr(sys, "_is_gil_enabled", lambda: True, raising=False)
        assert fork_hazards.program().threads == ()


# ---- a look keeps nothing ------------------------------------------------------------------------


class Item:
    """Something large that a thread works at."""


def test_what_a_thread_takes_from_a_queue_is_not_kept_by_a_look() -> None:
    """A thread that works through a queue all day is in one and the same frame."""
    items: queue.SimpleQueue[Any] = queue.SimpleQueue()
    seen: list[weakref.ref[Any]] = []

    def consume(items: queue.SimpleQueue[Any]) -> None:
        while (item := items.get()) is not None:
            seen.append(weakref.ref(item))

    thread = threading.Thread(target=consume, args=(items,))
    thread.start()
    items.put(Item())
    wait_until_at_rest(thread, 0.05)
    assert fork_hazards.program().threads == ()
    items.put(Item())
    give_up = time.monotonic() + PATIENCE_S
    while len(seen) < 2 and time.monotonic() < give_up:
        time.sleep(0.002)  # and nobody looks again
    first_is_there = seen[0]() is not None
    items.put(None)
    thread.join(PATIENCE_S)
    assert len(seen) == 2 and not first_is_there


def test_what_a_thread_has_had_is_not_kept_until_the_next_garbage_collection() -> None:
    done = threading.Event()
    seen: list[weakref.ref[Any]] = []

    def work() -> None:
        item = Item()
        seen.append(weakref.ref(item))
        while not done.is_set():
            time.sleep(0.01)  # right here: the innermost frame is this one

    gc.collect()
    gc.disable()
    try:
        thread = threading.Thread(target=work)
        thread.start()
        wait_until_parked(thread)
        assert fork_hazards.program().threads == ()
        done.set()
        thread.join(PATIENCE_S)
        assert seen[0]() is None
    finally:
        gc.enable()


# ---- what workers can reach ----------------------------------------------------------------------


class Holds:
    """A dataset with a lock in it."""

    def __init__(self) -> None:
        self.deep = {"lock": [threading.Lock()]}


def test_locks_are_found_in_attributes_and_globals_and_held_ones_named() -> None:
    dataset = Holds()
    reached = reached_from({"dataset": dataset})
    paths = {path for path, _ in reached.locks}
    assert "dataset.deep['lock'][0]" in paths
    assert f"{__name__}.LOCK" in paths and f"{__name__}.OTHER" in paths
    assert reached.held() == ""
    with dataset.deep["lock"][0]:
        assert reached.held() == "dataset.deep['lock'][0] is held"
    with OTHER:  # by this very thread, which a child would be
        assert reached.held() == ""


def test_a_lock_of_another_thread_is_named_with_it() -> None:
    reached = reached_from({"dataset": Holds()})
    taken, done = threading.Event(), threading.Event()

    def hold() -> None:
        with OTHER:
            taken.set()
            done.wait(PATIENCE_S)

    thread = threading.Thread(target=hold, name="writer")
    thread.start()
    taken.wait(PATIENCE_S)
    said = reached.held()
    done.set()
    thread.join()
    assert said == f"{__name__}.OTHER is held by the thread writer"


def test_a_thread_in_the_dataset_is_told_of_and_one_of_the_program_is_not() -> None:
    done = threading.Event()
    thread = threading.Thread(target=done.wait)
    thread.start()
    dataset = Holds()
    try:
        assert reached_from({"dataset": dataset}).held() == ""
        dataset.deep["thread"] = [thread]
        assert "has a thread" in reached_from({"dataset": dataset}).held()
    finally:
        done.set()
        thread.join()


def test_a_search_in_a_large_dataset_is_bounded() -> None:
    dataset = [{"lock": threading.Lock(), "names": ["x"] * 100} for _ in range(200_000)]
    began = time.thread_time()
    reached_from({"dataset": dataset})
    assert time.thread_time() - began < 5 * 0.02


@pytest.mark.skipif(sys.version_info >= (3, 13), reason="locks of Python 3.13 wait elsewhere")
def test_a_lock_is_found_by_where_a_worker_waits() -> None:
    import ctypes

    dataset = Holds()
    (lock,) = dataset.deep["lock"]
    address = ctypes.c_void_p.from_address(id(lock) + 16).value
    reached = reached_from({"dataset": dataset})
    assert lock_at(reached, f"123:{address:x}") == "dataset.deep['lock'][0]"
    assert lock_at(reached, "123:7f") == ""
