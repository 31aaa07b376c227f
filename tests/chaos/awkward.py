"""Datasets that are healthy but awkward: slow, busy, waiting for others. None of them fails.

Each sample gives its index, after something that real datasets do. `LAST_S` is longer than the
time after which a worker that keeps the loop waiting is reported; `SHORT_S` is not.
"""

from __future__ import annotations

import asyncio
import concurrent.futures
import contextlib
import fcntl
import multiprocessing
import os
import pickle
import queue
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch.utils.data import IterableDataset

LAST_S = 12.0
SHORT_S = 5.0
SLOW_AT = 3  # the index of the one sample that takes long


class Awkward:
    """Loads its index after a deed, which each sample does, or one of them."""

    def __init__(self, deed: Callable[[int], object], length: int = 12, once: bool = False) -> None:
        self.deed, self.length, self.once = deed, length, once

    def __len__(self) -> int:
        return self.length

    def __getitem__(self, index: int) -> int:
        if not self.once or index == SLOW_AT:
            self.deed(index)
        return index


class Stream(IterableDataset[int]):
    """A stream with one sample that takes long."""

    def __init__(self, deed: Callable[[int], object], length: int = 12) -> None:
        self.deed, self.length = deed, length

    def __iter__(self) -> Iterator[int]:
        info = torch.utils.data.get_worker_info()
        step = 1 if info is None else info.num_workers
        for index in range(0 if info is None else info.id, self.length, step):
            if index == SLOW_AT:
                self.deed(index)
            yield index


# ---- busy ----------------------------------------------------------------------------------------


def compute(seconds: float) -> Callable[[int], object]:
    """Use the processor, in calls of pure Python."""

    def deed(index: int) -> None:
        end = time.monotonic() + seconds
        while time.monotonic() < end:
            sum(number * number for number in range(20_000))
            sorted(str(number) for number in range(20_000))

    return deed


def use(seconds: float) -> Callable[[int], object]:
    """Use so much processor time, however long that takes."""

    def deed(index: int) -> None:
        end = time.thread_time() + seconds
        while time.thread_time() < end:
            sum(number * number for number in range(20_000))
            sorted(str(number) for number in range(20_000))

    return deed


def multiply(index: int) -> None:
    for _ in range(4):
        np.linalg.svd(np.random.rand(250, 250))


def multiply_in_threads(index: int) -> None:
    torch.mm(torch.rand(700, 700), torch.rand(700, 700)).sum()


def unpickle(index: int) -> None:
    pickle.loads(pickle.dumps([(number, str(number)) for number in range(150_000)]))


def nothing(index: int) -> None:
    pass


def two_threads(worker: int) -> None:
    torch.set_num_threads(2)


# ---- waiting, in ways that move ------------------------------------------------------------------


def read_files(index: int) -> None:
    with tempfile.NamedTemporaryFile() as file:
        file.write(os.urandom(4 << 20))
        file.flush()
        os.fsync(file.fileno())
        Path(file.name).read_bytes()


def trickle(seconds: float) -> Callable[[int], object]:
    """Ask a server that answers a few bytes at a time."""

    def deed(index: int) -> None:
        with socket.create_server(("127.0.0.1", 0)) as server:
            child = os.fork()
            if child == 0:
                _serve(server, seconds)
            with socket.create_connection(server.getsockname()) as asked:
                while asked.recv(100):
                    pass
            os.waitpid(child, 0)

    return deed


def _serve(server: socket.socket, seconds: float) -> None:
    try:
        asked, _ = server.accept()
        end = time.monotonic() + seconds
        while time.monotonic() < end:
            asked.send(b"x" * 10)
            time.sleep(0.4)
    finally:
        os._exit(0)


def run_program(seconds: float) -> Callable[[int], object]:
    """Wait for a program that is busy."""
    code = f"import time; e = time.time() + {seconds}\nwhile time.time() < e: sum(range(9999))"

    def deed(index: int) -> None:
        subprocess.run([sys.executable, "-S", "-c", code], check=True)

    return deed


def poll(seconds: float) -> Callable[[int], object]:
    """Look at a file again and again until it is there, as one does on slow file systems."""

    def deed(index: int) -> None:
        end = time.monotonic() + seconds
        while time.monotonic() < end:
            Path("/proc/self/stat").read_bytes()
            time.sleep(0.3)

    return deed


# ---- waiting, still: for a while, and never for ever ---------------------------------------------


def sleep(seconds: float) -> Callable[[int], object]:
    return lambda index: time.sleep(seconds)


def wait_for_thread(seconds: float) -> Callable[[int], object]:
    """Wait for a lock without a limit; a thread that sleeps will release it."""

    def deed(index: int) -> None:
        with concurrent.futures.ThreadPoolExecutor(2) as pool:
            pool.submit(time.sleep, seconds).result()

    return deed


def wait_for_timer(seconds: float) -> Callable[[int], object]:
    def deed(index: int) -> None:
        told = threading.Event()
        timer = threading.Timer(seconds, told.set)
        timer.start()
        told.wait()
        timer.join()

    return deed


def wait_with_limit(seconds: float) -> Callable[[int], object]:
    """Wait for what never comes, with a limit."""

    def deed(index: int) -> None:
        with contextlib.suppress(queue.Empty):
            queue.Queue().get(timeout=seconds)

    return deed


def wait_for_alarm(seconds: float) -> Callable[[int], object]:
    """Wait for a lock that a signal's handler will release."""

    def deed(index: int) -> None:
        told = threading.Event()
        before = signal.signal(signal.SIGALRM, lambda *_: told.set())
        signal.setitimer(signal.ITIMER_REAL, seconds)
        told.wait()
        signal.signal(signal.SIGALRM, before)

    return deed


def wait_for_child_by_signal(seconds: float) -> Callable[[int], object]:
    """Wait for a lock that is released when a program ends."""

    def deed(index: int) -> None:
        told = threading.Event()
        before = signal.signal(signal.SIGCHLD, lambda *_: told.set())
        with subprocess.Popen(["sleep", str(seconds)]) as program:
            told.wait()
            program.wait()
        signal.signal(signal.SIGCHLD, before)

    return deed


def wait_for_sleeping_program(seconds: float) -> Callable[[int], object]:
    return lambda index: subprocess.run(["sleep", str(seconds)], check=True)


def wait_in_event_loop(seconds: float) -> Callable[[int], object]:
    return lambda index: asyncio.run(asyncio.sleep(seconds))


class Sharing(Awkward):
    """Workers that wait for each other, by what processes share."""

    def __init__(self, how: str, seconds: float) -> None:
        super().__init__(self._wait, 4)
        self.how, self.seconds = how, seconds
        self.lock, self.told = multiprocessing.Lock(), multiprocessing.Event()
        self.ends = multiprocessing.Pipe()
        with tempfile.NamedTemporaryFile(delete=False) as file:
            self.path = Path(file.name)

    def _wait(self, index: int) -> None:
        match self.how:
            case "lock":
                with self.lock:
                    time.sleep(self.seconds / 3)
            case "event":
                if index == 0:
                    time.sleep(self.seconds)
                    self.told.set()
                self.told.wait()
            case "pipe":
                if index == 0:
                    self.ends[0].recv()
                elif index == 1:
                    time.sleep(self.seconds)
                    self.ends[1].send(1)
            case "file":
                with open(self.path, "rb") as file:
                    fcntl.flock(file, fcntl.LOCK_EX)
                    time.sleep(self.seconds / 3)

    def close(self) -> None:
        self.path.unlink()
        for end in self.ends:
            end.close()


def slow_rows(rows: list[Any]) -> Any:
    """Collate slowly."""
    time.sleep(SHORT_S)
    return torch.utils.data.default_collate(rows)


def slow_to_begin(worker: int) -> None:
    time.sleep(SHORT_S)


def humble(worker: int) -> None:
    """Give way to everybody: such a worker may get no processor for seconds."""
    os.sched_setscheduler(0, os.SCHED_IDLE, os.sched_param(0))


class Slabs(Awkward):
    """Large samples: batches wait in slabs while the loop is away."""

    def __getitem__(self, index: int) -> Any:
        return torch.full((512, 512), index)
