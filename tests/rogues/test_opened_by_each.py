"""Objects that make themselves anew where they arrive: each worker has what they open to itself."""

from __future__ import annotations

import os
import socket
import threading
import warnings
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from typing import Any

import pytest

from antifreeze import DataLoader
from antifreeze._processes.replication.kinds import named_objects

from .clean import another_thread

SAMPLES = 120


@contextmanager
def echo_server() -> Iterator[tuple[str, int]]:
    """Answer each line of each connection with itself, until nobody asks any more."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        server.settimeout(30)

        def serve() -> None:
            with ThreadPoolExecutor(8) as pool:
                try:
                    while True:
                        pool.submit(answer, server.accept()[0])
                except OSError:
                    return

        def answer(connection: socket.socket) -> None:
            with connection, connection.makefile("rwb", buffering=0) as lines:
                for line in lines:
                    lines.write(line)

        thread = threading.Thread(target=serve, daemon=True)
        thread.start()
        try:
            yield server.getsockname()
        finally:
            server.shutdown(socket.SHUT_RDWR)
            thread.join(30)


class Asks:
    """A connection of its own in every process: the usual way."""

    def __init__(self, address: tuple[str, int]) -> None:
        self.address = address
        self.connect()

    def connect(self) -> None:
        self.sock = socket.create_connection(self.address, timeout=30)
        self.lines = self.sock.makefile("rwb", buffering=0)

    def __getstate__(self) -> dict[str, Any]:
        return {"address": self.address}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.address = state["address"]
        self.connect()

    def __len__(self) -> int:
        return SAMPLES

    def __getitem__(self, index: int) -> int:
        self.lines.write(b"%d\n" % index)
        return int(self.lines.readline())


@pytest.mark.parametrize("context", ["spawn", None], ids=["spawn", "clean, unasked"])
def test_a_connection_that_is_made_on_arrival_is_not_shared(context: str | None) -> None:
    with echo_server() as address, another_thread():
        dataset: Any = Asks(address)
        loader = DataLoader(dataset, 4, num_workers=2, multiprocessing_context=context)
        with warnings.catch_warnings(action="error"):  # its own connection is none of theirs
            assert [int(each) for batch in loader for each in batch] == list(range(SAMPLES))
        dataset.lines.close()
        dataset.sock.close()


class Marked:
    """Takes note of the process that it arrives in, and of a pool that it makes there."""

    def __init__(self) -> None:
        self.home = os.getpid()
        self.pool: Any = None

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.home = os.getpid()
        self.pool = ThreadPoolExecutor(1)
        self.pool.submit(int).result()

    def __len__(self) -> int:
        return 8

    def __getitem__(self, index: int) -> tuple[int, int, int]:
        return self.pool.submit(int, index).result(), self.home, os.getpid()


def test_what_runs_on_arrival_runs_in_the_worker_itself_and_in_its_replacement() -> None:
    dataset: Any = Marked()
    loader = DataLoader(dataset, None, num_workers=2, multiprocessing_context="spawn")
    seen = []
    iterator = iter(loader)
    for index, home, pid in iterator:
        assert home == pid != os.getpid()
        seen.append(index)
        if index == 3:
            os.kill(pid, 9)
    assert seen == list(range(8))


class Fails(Marked):
    def __setstate__(self, state: dict[str, Any]) -> None:
        raise RuntimeError("no such index")


def test_what_fails_on_arrival_is_an_error_with_its_words() -> None:
    dataset: Any = Fails()
    with pytest.raises(RuntimeError, match="No worker came up") as caught:
        list(DataLoader(dataset, num_workers=2, multiprocessing_context="spawn"))
    assert "RuntimeError: no such index" in str(caught.value)


class Plain:
    def __getstate__(self) -> dict[str, Any]:
        return {}


@pytest.mark.parametrize("kind, runs", [(Asks, True), (Fails, True), (Plain, False), (dict, False)])
def test_who_makes_himself_anew(kind: type, runs: bool) -> None:
    assert named_objects.makes_itself_anew(kind) is runs
