"""Conversations that a dataset began before there were workers: sockets, pipes, clients."""

from __future__ import annotations

import asyncio
import contextlib
import errno
import http.client
import multiprocessing
import os
import re
import select
import socket
import ssl
import threading
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from torch.utils.data import ConcatDataset, Dataset

from antifreeze import DataLoader
from antifreeze._processes.starting import inherited_handles

from .clean import another_thread


@pytest.fixture(autouse=True)
def nothing_told_yet(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(inherited_handles, "_told", set())


class Holds(Dataset[int]):
    """A dataset with attributes, and something to do for each sample."""

    def __init__(self, work: Callable[[Any, int], Any] | None = None, **attributes: Any) -> None:
        self.__dict__.update(attributes)
        self.work = work or give

    def __len__(self) -> int:
        return 16

    def __getitem__(self, index: int) -> int:
        return int(self.work(self, index))


def give(dataset: Any, index: int) -> int:
    return index


def ask_pipe(dataset: Any, index: int) -> int:
    dataset.pipe.send(index)
    return int(dataset.pipe.recv())


def ask_client(dataset: Any, index: int) -> int:
    dataset.client.sock.sendall(b"%d" % index)
    return int(dataset.client.sock.recv(8))


def ask_wrapped(dataset: Any, index: int) -> int:
    try:
        return ask_client(dataset, index)
    except OSError as error:
        raise RuntimeError("no answer") from error


class Client:
    def __init__(self, sock: Any) -> None:
        self.sock = sock


@contextlib.contextmanager
def both(ends: tuple[Any, Any]) -> Iterator[tuple[Any, Any]]:
    with ends[0], ends[1]:
        yield ends


def told(loader: DataLoader[Any]) -> list[str]:
    """Load everything; give the warnings."""
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        assert torch.cat(list(loader)).tolist() == list(range(16))
    return [str(each.message) for each in caught]


DESCENTS = ["forked", "beside a thread", "spawned"]


def error_of(dataset: Any, descent: str) -> str:
    """Load everything; give the error with its notes."""
    beside = another_thread() if descent == "beside a thread" else contextlib.nullcontext()
    context = "spawn" if descent == "spawned" else None
    loader = DataLoader(dataset, 4, num_workers=2, multiprocessing_context=context)
    with beside, warnings.catch_warnings(), pytest.raises(Exception) as caught:
        warnings.simplefilter("ignore")
        list(loader)
    return "\n".join([str(caught.value), *getattr(caught.value, "__notes__", ())])


@pytest.mark.parametrize("descent", DESCENTS)
def test_a_pipe_of_multiprocessing_is_taken_from_those_who_would_share_it(descent: str) -> None:
    with both(multiprocessing.Pipe()) as (ours, theirs):
        error = error_of(Holds(ask_pipe, pipe=theirs, other=ours), descent)
        assert not ours.poll(), "a worker has spoken"
    assert "antifreeze: dataset.pipe, dataset.other: opened before the workers" in error


@pytest.mark.parametrize("work", [ask_client, ask_wrapped])
@pytest.mark.parametrize("descent", DESCENTS)
def test_a_socket_is_taken_wherever_workers_come_from_and_the_error_names_its_holder(
    descent: str, work: Callable[[Any, int], Any]
) -> None:
    with both(socket.socketpair()) as (ours, theirs):
        error = error_of(Holds(work, client=Client(theirs)), descent)
        ours.setblocking(False)
        with pytest.raises(BlockingIOError):  # nobody has spoken
            ours.recv(8)
        theirs.sendall(b"1")  # and here it works as before
        assert ours.recv(8) == b"1"
    assert "antifreeze: dataset.client: opened before the workers" in error


def receive(sock: Any) -> None:
    sock.recv(8)


def select_and_receive(sock: Any) -> None:
    select.select([sock], [], [], 5.0)
    sock.recv(8)


def receive_in_time(sock: Any) -> None:
    sock.settimeout(5.0)
    sock.recv(8)


def read_line(sock: Any) -> None:
    sock.makefile("rb").readline()


def request(sock: Any) -> None:
    connection = http.client.HTTPConnection("localhost")
    connection.sock = sock
    connection.request("GET", "/")
    connection.getresponse()


def ask_in_vain(sock: Any) -> None:
    try:
        sock.sendall(b"x")
    except OSError as error:
        raise LookupError("no such row") from error


CALLS = [receive, select_and_receive, receive_in_time, read_line, request, ask_in_vain]


@pytest.mark.parametrize("call", [lambda sock: sock.sendall(b"x"), *CALLS])
def test_the_text_of_the_error_itself_says_that_a_socket_was_taken(
    call: Callable[[Any], None],
) -> None:
    with both(socket.socketpair()) as (_, theirs):
        dataset = Holds(lambda it, index: call(it.client), client=theirs)
        loader = DataLoader(dataset, 4, num_workers=2)
        with warnings.catch_warnings(), pytest.raises((OSError, LookupError)) as caught:
            warnings.simplefilter("ignore")
            list(loader)
    text = str(caught.value)
    assert "dataset.client was opened before the workers, and is taken from them" in text
    assert "antifreeze.per_worker" in text
    if isinstance(caught.value, OSError):
        assert caught.value.errno == errno.EBADF


def encrypted() -> tuple[Any, Any]:
    """Return two ends of an encrypted connection, without certificates."""
    contexts = []
    for role in (ssl.PROTOCOL_TLS_SERVER, ssl.PROTOCOL_TLS_CLIENT):
        context = ssl.SSLContext(role)
        context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
        context.maximum_version = ssl.TLSVersion.TLSv1_2
        context.set_ciphers("aNULL:@SECLEVEL=0")
        contexts.append(context)
    listener = socket.create_server(("localhost", 0))
    theirs = socket.create_connection(listener.getsockname())
    ours, _ = listener.accept()
    listener.close()
    wrapped: list[Any] = []
    serving = threading.Thread(
        target=lambda: wrapped.append(contexts[0].wrap_socket(ours, server_side=True))
    )
    serving.start()
    client = contexts[1].wrap_socket(theirs)
    serving.join()
    return wrapped[0], client


@pytest.mark.parametrize("call", [lambda sock: sock.sendall(b"x"), receive])
def test_the_text_says_it_of_an_encrypted_connection_too(call: Callable[[Any], None]) -> None:
    with both(encrypted()) as (_, theirs):
        dataset = Holds(lambda it, index: call(it.client), client=theirs)
        loader = DataLoader(dataset, 4, num_workers=2)
        with warnings.catch_warnings(), pytest.raises(OSError) as caught:
            warnings.simplefilter("ignore")
            list(loader)
    assert "dataset.client was opened before the workers" in str(caught.value)


def test_an_error_of_another_kind_stays_as_it_is() -> None:
    def missing(dataset: Any, index: int) -> int:
        raise FileNotFoundError(errno.ENOENT, "No such file", "rows")

    with both(socket.socketpair()) as (_, theirs):
        loader = DataLoader(Holds(missing, client=theirs), 4, num_workers=2)
        with warnings.catch_warnings(), pytest.raises(FileNotFoundError) as caught:
            warnings.simplefilter("ignore")
            list(loader)
    assert str(caught.value) == "[Errno 2] No such file: 'rows'"


def test_what_multiprocessing_shares_by_itself_is_nobodys_trouble() -> None:
    queue: Any = multiprocessing.SimpleQueue()
    try:
        dataset = Holds(lambda it, index: (it.queue.put(index), index)[1], queue=queue)
        assert told(DataLoader(dataset, 4, num_workers=2)) == []
        assert sorted(queue.get() for _ in range(16)) == list(range(16))
    finally:
        queue.close()


def test_a_pipe_that_workers_only_write_to_is_left_to_them() -> None:
    with both(multiprocessing.Pipe(duplex=False)) as (ours, theirs):
        dataset = Holds(lambda it, index: (it.log.send(index), index)[1], log=theirs)
        assert told(DataLoader(dataset, 4, num_workers=2)) == []
        assert sorted(ours.recv() for _ in range(16)) == list(range(16))


def test_a_pipe_that_one_worker_alone_uses_is_left_to_it() -> None:
    with both(multiprocessing.Pipe()) as (ours, theirs):
        dataset = Holds(lambda it, index: (it.log.send(index), index)[1], log=theirs)
        assert told(DataLoader(dataset, 4, num_workers=1)) == []
        assert [ours.recv() for _ in range(16)] == list(range(16))


def test_the_holder_of_an_event_loop_is_named_once_and_not_what_is_inside() -> None:
    loop = asyncio.new_event_loop()
    try:
        (text,) = told(DataLoader(Holds(files=Client(loop)), 4, num_workers=2))
    finally:
        loop.close()
    assert text.startswith("antifreeze: dataset.files holds an open socket (dataset.files.sock._")
    assert "dataset.files = antifreeze.per_worker(open_it)" in text


def test_in_a_dataset_of_datasets_the_inner_one_holds_it() -> None:
    with both(socket.socketpair()) as (ours, _):
        dataset: Any = ConcatDataset([Holds(client=Client(ours))])
        (text,) = told(DataLoader(dataset, 4, num_workers=2))
    name = re.escape("dataset.datasets[0].client")
    assert re.match(rf"antifreeze: {name} holds an open socket \({name}\.sock\)", text)
    assert "dataset.datasets[0].client = antifreeze.per_worker(open_it)" in text


def test_a_thread_in_a_dataset_is_told_of_in_words_of_its_own() -> None:
    done = threading.Event()
    thread = threading.Thread(target=done.wait)
    thread.start()
    try:
        loader = DataLoader(Holds(feeder=thread), 4, num_workers=2, multiprocessing_context="fork")
        (text,) = told(loader)
    finally:
        done.set()
        thread.join()
    assert text.startswith(
        "antifreeze: dataset.feeder is a thread, started before the workers: it does not run in"
    )
    assert (
        "Have each worker start its own: dataset.feeder = antifreeze.per_worker(start_it)" in text
    )


# ---- numbers of descriptors ----------------------------------------------------------------------


@pytest.mark.parametrize(
    ("descent", "why"),
    [
        ("beside a thread", "another thread runs here"),
        ("spawned", "processes start by spawn or forkserver here"),
    ],
)
def test_a_number_that_means_nothing_in_a_clean_process_is_explained(
    descent: str, why: str, tmp_path: Path
) -> None:
    number = os.open(tmp_path / "numbers", os.O_RDONLY | os.O_CREAT)
    try:
        error = error_of(
            Holds(lambda it, index: len(os.pread(it.number, 1, 0)), number=number), descent
        )
    finally:
        os.close(number)
    assert f"comes from a clean process, since {why}" in error
    assert 'multiprocessing_context="fork", where workers inherit it' in error
