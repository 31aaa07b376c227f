"""The worker's end of a channel, its outbox and its fetching, one part at a time."""

from __future__ import annotations

import errno
import socket
import threading
from collections.abc import Iterator
from typing import Any

import pytest
import torch

from antifreeze._core.batch_timings import Timings
from antifreeze._linux.clock import monotonic
from antifreeze._loading.fetch import Fetcher
from antifreeze._loading.job import Job
from antifreeze._processes.worker_process_view import WorkerHandle
from antifreeze._processes.worker_socket import Line
from antifreeze._transport.framing import Kind, prefix
from antifreeze._transport.mapped_slabs import MappedSlabs, Returns
from antifreeze._transport.packing import pack
from antifreeze._transport.status_board import StatusBoard
from antifreeze._transport.ticket_codec import Task
from antifreeze._worker.channel import Channel
from antifreeze._worker.outbox import Outbox

from ..patience import PATIENCE_S


def frame(kind: Kind) -> bytes:
    return prefix(kind, 1) + b"x"


@pytest.fixture
def pair() -> Iterator[tuple[socket.socket, socket.socket]]:
    ours, theirs = socket.socketpair()
    yield ours, theirs
    ours.close()
    theirs.close()


@pytest.mark.parametrize("waits", [True, False])
@pytest.mark.parametrize("kind", [Kind.BEGIN_EPOCH, Kind.STOP])
def test_tickets_that_something_newer_makes_void_are_skipped(
    pair: tuple[socket.socket, socket.socket], kind: Kind, waits: bool
) -> None:
    ours, theirs = pair
    channel = Channel(theirs)
    message = frame(Kind.TICKETS) + frame(kind)
    if waits:
        received, _ = channel.receive(
            lambda: ours.sendall(message), lambda: None
        )  # it is about to wait
    else:
        ours.sendall(message)
        received, _ = channel.receive(lambda: None, lambda: None)
    assert received is kind


class Refusing:
    """A channel whose kernel has no memory for a message."""

    def send(self, kind: Kind, body: bytes, descriptor: int | None = None) -> None:
        raise OSError(errno.ENOBUFS, "no buffer space available")


def test_parcels_that_the_thread_cannot_send_end_the_life() -> None:
    board = StatusBoard(int)
    outbox = Outbox(Refusing(), board.line(1))
    outbox.expect_bundles()
    now = monotonic()
    outbox.put(Task(1, 0, 0, 1, False, b""), pack(torch.zeros(3)), Timings(0, 0, 0, now, now))
    assert outbox._thread is not None
    outbox._thread.join(PATIENCE_S)
    with pytest.raises(RuntimeError, match="could not be sent") as caught:
        outbox.flush()
    assert isinstance(caught.value.__cause__, OSError)


def test_nothing_is_read_after_a_read_that_was_interrupted(
    pair: tuple[socket.socket, socket.socket],
) -> None:
    ours, theirs = pair
    line = Line(WorkerHandle("it"), ours, StatusBoard(int).line(1), MappedSlabs(0, 1, Returns()))
    theirs.sendall(frame(Kind.READY) + frame(Kind.EPOCH_BEGUN))
    with pytest.raises(KeyboardInterrupt):
        for _ in line.read():
            raise KeyboardInterrupt
    theirs.sendall(frame(Kind.READY))
    with pytest.raises(EOFError):
        list(line.read())
    line.close()


def job(dataset: Any) -> Job:
    return Job(
        dataset=dataset,
        streams=False,
        auto_collation=True,
        collate_fn=list,
        drop_last=False,
        num_workers=1,
        base_seed=0,
        init_fn=None,
    )


class Failing:
    """Loads what is below ten. May change the list it is asked for."""

    def __init__(self, indices: list[int] | None = None) -> None:
        self.indices = indices

    def __getitem__(self, index: int) -> int:
        if index >= 10:
            if self.indices is not None:
                self.indices.clear()
            raise ValueError(index)
        return index


@pytest.mark.parametrize("kind", [list, tuple, dict.fromkeys, iter])
@pytest.mark.parametrize("place", [0, 1, 2])
def test_the_sample_that_failed_is_named(kind: Any, place: int) -> None:
    indices = [1, 2, 3]
    indices[place] = 10 + place
    fetcher = Fetcher(job(Failing()))
    with pytest.raises(ValueError, match=str(10 + place)):
        fetcher.load(kind(indices), 0)
    assert fetcher.doing() == f"loading sample {10 + place}"


def test_indices_that_change_meanwhile_do_not_hide_the_error() -> None:
    indices = [1, 12, 3]
    fetcher = Fetcher(job(Failing(indices)))
    with pytest.raises(ValueError, match="12"):
        fetcher.load(indices, 0)
    assert fetcher.doing().startswith("loading")


def test_indices_that_raise_are_said_to_do_so() -> None:
    def broken() -> Iterator[int]:
        yield 1
        raise KeyError("no more")

    fetcher = Fetcher(job(Failing()))
    with pytest.raises(KeyError, match="no more"):
        fetcher.load(broken(), 0)
    assert fetcher.doing() == "reading the indices"


def test_threads_may_make_the_first_object_of_a_class_at_once() -> None:
    from antifreeze._core.frozen_values import message

    @message
    class Point:
        x: int
        y: int = 2

    made: list[Point] = []
    threads = [threading.Thread(target=lambda: made.append(Point(1))) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(PATIENCE_S)
    assert made == [Point(1, 2)] * 8


def test_a_subclass_keeps_its_own_way_of_being_made() -> None:
    from antifreeze._core.frozen_values import record

    @record
    class Base:
        x: int

    class Derived(Base):
        def __init__(self, x: int) -> None:
            super().__init__(x)
            self.twice = 2 * x

    assert [Derived(n).twice for n in (1, 2, 3)] == [2, 4, 6]
