"""Workers that were told to stop: the loop does not wait for the kernel, and misses nothing."""

from __future__ import annotations

import fcntl
import os
import socket
import threading
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from antifreeze import DataLoader
from antifreeze._core.limits import LIMITS
from antifreeze._processes.starting.process_creation import patiently

from ..patience import PATIENCE_S
from .programs import finish, program


class Numbers:
    def __init__(self, length: int = 8) -> None:
        self.length = length

    def __len__(self) -> int:
        return self.length

    def __getitem__(self, index: int) -> int:
        return index


def is_there(pid: int) -> bool:
    return Path(f"/proc/{pid}").exists()


def test_workers_of_a_finished_loop_are_over_and_soon_gone() -> None:
    loader: DataLoader[int] = DataLoader(Numbers(), num_workers=2)
    iterator = iter(loader)
    workers: list[Any] = iterator._workers
    assert len(list(iterator)) == 8
    assert [worker.exitcode for worker in workers] == [0, 0]
    assert not any(worker.is_alive() for worker in workers)
    give_up = time.monotonic() + PATIENCE_S
    while any(is_there(worker.pid) for worker in workers) and time.monotonic() < give_up:
        time.sleep(0.005)
    assert not any(is_there(worker.pid) for worker in workers)


class Holds(Numbers):
    """Opens a port and locks a file in each worker, and never gives them back."""

    def __init__(self, port: int, path: Path) -> None:
        super().__init__(4)
        self.port, self.path = port, path
        self.held: Any = None

    def __getitem__(self, index: int) -> int:
        if self.held is None:
            file = open(self.path, "w")  # noqa: SIM115
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            sock = socket.create_server(("127.0.0.1", self.port), reuse_port=False)
            self.held = file, sock
        return index


def test_what_a_worker_held_is_free_when_the_loop_is_over(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as sock:
        port = sock.getsockname()[1]
    loader: DataLoader[int] = DataLoader(Holds(port, tmp_path / "file"), num_workers=1)
    for _ in range(10):
        assert len(list(loader)) == 4
        with open(tmp_path / "file", "w") as file:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        socket.create_server(("127.0.0.1", port)).close()


class Writes(Numbers):
    """Has a thread of its own, which is waited for, and an exit handler of multiprocessing's."""

    def __init__(self, path: Path) -> None:
        super().__init__(2)
        self.path = path

    def __getitem__(self, index: int) -> int:
        if index == 0:
            from multiprocessing import util

            done = threading.Event()
            util.Finalize(None, self.write, args=("finalized",), exitpriority=1)
            util.Finalize(None, done.set, exitpriority=2)
            threading.Thread(target=lambda: (done.wait(), self.write("thread"))).start()
        return index

    def write(self, word: str) -> None:
        with open(self.path, "a") as file:
            file.write(f"{word}\n")


def test_exit_handlers_and_threads_of_a_worker_are_done_when_the_loop_is_over(
    tmp_path: Path,
) -> None:
    path = tmp_path / "written"
    assert len(list(DataLoader(Writes(path), num_workers=1))) == 2
    assert sorted(path.read_text().split()) == ["finalized", "thread"]


class HasThread(Numbers):
    def __getitem__(self, index: int) -> int:
        if index == 0:
            threading.Thread(target=threading.Event().wait, daemon=True).start()
        return index


def test_a_worker_with_a_thread_of_the_users_is_waited_for() -> None:
    loader: DataLoader[int] = DataLoader(HasThread(), num_workers=1)
    iterator = iter(loader)
    (worker,) = iterator._workers
    assert len(list(iterator)) == 8
    status = Path(f"/proc/{worker.pid}/stat")
    assert not status.exists() or status.read_text().rpartition(")")[2].split()[0] in "ZX"
    assert worker.exitcode == 0


def test_where_there_is_no_process_for_the_moment_it_is_tried_again() -> None:
    limits = replace(LIMITS.starting, process_pause_s=0.0)
    left = [3]

    def make() -> str:
        left[0] -= 1
        if left[0] >= 0:
            raise BlockingIOError(11, os.strerror(11))
        return "made"

    assert patiently(make, limits) == "made"
    left[0] = 1000
    with pytest.raises(BlockingIOError):
        patiently(make, limits)
    assert left[0] == 1000 - limits.process_tries - 1


def test_a_loop_in_a_thread_of_a_pool_ends_without_a_word(tmp_path: Path) -> None:
    code = """
    from concurrent.futures import ThreadPoolExecutor
    with ThreadPoolExecutor(1) as pool:
        loader = DataLoader(list(range(12)), batch_size=4, num_workers=2)
        for _ in range(2):
            got = pool.submit(lambda: [batch.tolist() for batch in loader]).result()
            assert got == [[0, 1, 2, 3], [4, 5, 6, 7], [8, 9, 10, 11]]
    """
    with program(tmp_path, code) as process:
        assert finish(process) == (0, "", "")
