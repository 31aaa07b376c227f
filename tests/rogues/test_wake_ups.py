"""Bytes, batches and new parts of the code are progress; wake-ups and processor time alone are not.

What wakes up and sleeps again at one line is stuck; what receives bytes moves, however slowly; and
of what computes at one line no more is said than what is seen.
"""

from __future__ import annotations

import asyncio
import ctypes
import hashlib
import importlib
import os
import select
import socket
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from antifreeze._linux import network_bytes
from antifreeze._linux.socket_traffic import sockets_of, tcp_bytes, unix_peers
from antifreeze._processes import process_activity

from .test_hangs import Rogue, reported

BEAT_S = 0.2  # on a busy machine one that wakes up is seen to run until it gets a processor


async def _never_comes() -> None:
    async def keep_alive() -> None:
        while True:
            await asyncio.sleep(BEAT_S)

    beats = asyncio.create_task(keep_alive())
    await asyncio.Event().wait()
    beats.cancel()


def _event_loop_with_a_timer() -> None:
    asyncio.run(_never_comes())


def _poll_of_a_silent_server() -> None:
    """As gRPC's poller does in a forked process: it looks again and again, and nothing comes."""
    with (
        socket.create_server(("127.0.0.1", 0)) as server,
        socket.create_connection(server.getsockname()) as asked,
    ):
        poller = select.epoll()
        poller.register(asked, select.EPOLLIN)
        while not poller.poll(BEAT_S): pass  # fmt: skip  # noqa: E701


def _select_of_a_pipe() -> None:
    reader, _ = os.pipe()
    while not select.select([reader], [], [], BEAT_S)[0]: pass  # fmt: skip  # noqa: E701


def _flag_that_nobody_sets() -> None:
    flag: list[int] = []
    while not flag: time.sleep(BEAT_S)  # fmt: skip  # noqa: E701


def _server_that_trickles() -> None:
    """A byte now and then, taken by `recv`, which the kernel does not count as read."""
    with socket.create_server(("127.0.0.1", 0)) as server:

        def trickle() -> None:
            with server.accept()[0] as client:
                while True:
                    client.send(b"x")
                    time.sleep(BEAT_S)

        threading.Thread(target=trickle, daemon=True).start()
        with socket.create_connection(server.getsockname()) as asked:
            while asked.recv(1): pass  # fmt: skip  # noqa: E701


def _long_native_computation() -> None:
    hashlib.pbkdf2_hmac("sha256", b"word", b"salt", 2_000_000_000)


@pytest.mark.parametrize(
    "deed",
    [
        _event_loop_with_a_timer,
        _poll_of_a_silent_server,
        _select_of_a_pipe,
        _flag_that_nobody_sets,
    ],
)
def test_to_wake_up_and_sleep_again_is_stuck(
    deed: Callable[[], None], caplog: pytest.LogCaptureFixture
) -> None:
    said = reported(Rogue(deed), caplog)
    assert " is stuck at " in said
    assert "times and went to sleep again at this line; no CPU, no I/O for" in said


def test_what_receives_a_byte_now_and_then_moves(caplog: pytest.LogCaptureFixture) -> None:
    assert " is slow but moving at " in reported(Rogue(_server_that_trickles), caplog)


def test_of_a_long_native_computation_no_more_is_said_than_is_seen(
    caplog: pytest.LogCaptureFixture,
) -> None:
    said = reported(Rogue(_long_native_computation), caplog)
    assert " is running on one line at " in said
    assert "its stack has not changed, and it has read and written nothing for" in said
    assert "stuck" not in said and "spinning" not in said


def test_a_pool_of_threads_that_a_fork_left_behind_is_named_as_the_likely_cause(
    caplog: pytest.LogCaptureFixture,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """As gRPC does where its support for forks is off (seen with grpcio 1.85): its threads have
    such names, and the client polls."""
    package = tmp_path / "site-packages" / "grpc"
    package.mkdir(parents=True)
    (package / "__init__.py").write_text(
        "import select\n\ndef call():\n    with select.epoll() as poller:\n"
        "        while not poller.poll(0.2): pass\n"
    )
    monkeypatch.syspath_prepend(str(package.parent))
    monkeypatch.delitem(sys.modules, "grpc", raising=False)
    client = importlib.import_module("grpc")
    done = threading.Event()

    def rest() -> None:
        ctypes.CDLL(None).prctl(15, b"grpc_global_tim", 0, 0, 0)
        done.wait()

    thread = threading.Thread(target=rest)
    thread.start()
    try:
        said = reported(Rogue(client.call), caplog, context="fork")
    finally:
        done.set()
        thread.join()
        sys.modules.pop("grpc", None)
    assert " is stuck at " in said
    assert (
        "Likely cause: it was forked from a process with threads of gRPC (grpc_global_tim)" in said
    )


@contextmanager
def connected() -> Iterator[tuple[socket.socket, socket.socket]]:
    with (
        socket.create_server(("127.0.0.1", 0)) as server,
        socket.create_connection(server.getsockname()) as one,
        server.accept()[0] as other,
    ):
        yield one, other


def test_the_kernel_counts_what_a_socket_has_received() -> None:
    if tcp_bytes() is None:
        pytest.skip("this kernel does not answer questions about sockets")
    with connected() as (one, other):
        inode = os.fstat(other.fileno()).st_ino
        before = (tcp_bytes() or {})[inode]
        one.sendall(b"x" * 1000)
        other.recv(1000, socket.MSG_WAITALL)
        assert (tcp_bytes() or {})[inode] - before == 1000


def test_the_other_end_of_a_pair_is_known() -> None:
    one, other = socket.socketpair()
    with one, other:
        ends = os.fstat(one.fileno()).st_ino, os.fstat(other.fileno()).st_ino
        if not (peers := unix_peers()):
            pytest.skip("this kernel does not answer questions about sockets")
        assert (peers[ends[0]], peers[ends[1]]) == (ends[1], ends[0])
        assert {*ends} <= {*sockets_of(os.getpid()).values()}


def test_a_pair_of_the_process_itself_brings_nothing() -> None:
    if not unix_peers():
        pytest.skip("this kernel does not answer questions about sockets")
    one, other = socket.socketpair()
    task = str(threading.get_native_id())
    with one, other:
        assert network_bytes.awaited(os.getpid(), task, [one.fileno()]) == network_bytes.NOTHING


def test_wake_ups_count_where_the_kernel_does_not_count_bytes(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    task = str(threading.get_native_id())
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as datagrams:
        first = network_bytes.awaited(os.getpid(), task, [datagrams.fileno()])
        time.sleep(0.01)
        assert network_bytes.awaited(os.getpid(), task, [datagrams.fileno()]) > first
    with connected() as (one, _):
        first = network_bytes.awaited(os.getpid(), task, [one.fileno()])
        time.sleep(0.01)
        assert network_bytes.awaited(os.getpid(), task, [one.fileno()]) == first
        monkeypatch.setattr(network_bytes, "tcp_bytes", lambda: None)
        first = network_bytes.awaited(os.getpid(), task, [one.fileno()])
        time.sleep(0.01)
        assert network_bytes.awaited(os.getpid(), task, [one.fileno()]) > first


def test_what_the_main_process_receives_is_no_progress_of_a_worker() -> None:
    """A fork copies its connections: those that the parent has too are left out."""
    if tcp_bytes() is None:
        pytest.skip("this kernel does not answer questions about sockets")
    with connected() as (one, other):
        one.sendall(b"x" * 1000)
        other.recv(1000, socket.MSG_WAITALL)
        assert network_bytes.own_bytes(os.getpid(), os.getpid()) == 0
        assert network_bytes.own_bytes(os.getpid(), 1) >= 2000


def test_an_event_loop_is_seen_with_what_it_waits_for() -> None:
    done = threading.Event()
    tasks: list[int] = []

    def wait() -> None:
        with connected() as (one, _), select.epoll() as poller:
            poller.register(one, select.EPOLLIN)
            tasks.append(threading.get_native_id())
            while not done.is_set():
                poller.poll(BEAT_S)

    thread = threading.Thread(target=wait)
    thread.start()
    give_up = time.monotonic() + 60
    try:
        received, waits_for = network_bytes.NOTHING, ""
        while received == network_bytes.NOTHING and time.monotonic() < give_up:
            seen = process_activity.of_thread(tasks[0], ()) if tasks else None
            if seen is not None:
                received, waits_for = seen.received, seen.waits_for
        assert received != network_bytes.NOTHING
        assert "waiting for input from 127.0.0.1:" in waits_for
    finally:
        done.set()
        thread.join()
