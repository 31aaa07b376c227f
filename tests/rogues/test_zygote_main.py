"""What a zygote does not wait for: the main process to read, and one life after the other."""

from __future__ import annotations

import contextlib
import os
import pickle
import select
import socket
import threading
import time
from collections.abc import Iterator
from typing import Any

import pytest

from antifreeze._processes.starting import zygote_main
from antifreeze._processes.starting.worker_source import Refused, Wanted
from antifreeze._processes.starting.zygote_main import _FORK, KEEP, LEAVING_S, QUIT, _Nest
from antifreeze._transport.descriptors import Descriptor, received
from antifreeze._worker.worker_spec import EpochBrief

from ..patience import PATIENCE_S

MANY = 2_000  # more than a channel takes
LIVES = 12


@pytest.fixture
def channel() -> Iterator[tuple[socket.socket, socket.socket]]:
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    with ours, theirs:
        ours.settimeout(PATIENCE_S)
        yield ours, theirs


def nest_at(control: socket.socket) -> _Nest:
    mother: Any = None  # it bears nobody here
    return _Nest(mother, control, Descriptor(os.pidfd_open(os.getpid())))


def wanted(seat: int) -> Wanted:
    return Wanted(seat, 1, 0, EpochBrief(0))


def test_a_zygote_does_not_wait_for_the_main_process_to_read_and_tells_all(
    channel: tuple[socket.socket, socket.socket],
) -> None:
    ours, theirs = channel
    nest = nest_at(theirs)
    before = len(os.listdir("/proc/self/fd"))
    # Descriptors on their way count for those of a user who is not root, so not all at once.
    for _ in range(2):
        nest._say(Refused, wanted(0), "words", Descriptor(os.pidfd_open(os.getpid())))
    for seat in range(MANY):
        nest._say(Refused, wanted(seat), "words")
    ended: list[str] = []
    serving = threading.Thread(target=lambda: ended.append(nest.serve()), daemon=True)
    serving.start()
    heard = []
    for _ in range(MANY + 2):
        data, riders, _, _ = ours.recvmsg(1000, socket.CMSG_SPACE(8))
        (came,) = received(riders) or (None,)
        heard.append((pickle.loads(data)[1], came is not None))
        if came is not None:
            assert not select.select([came.number], [], [], 0)[0]  # of a process that lives
            came.close()
    assert heard == [(0, True)] * 2 + [(seat, False) for seat in range(MANY)]
    ours.send(pickle.dumps(KEEP))
    serving.join(PATIENCE_S)
    assert ended == [KEEP]
    assert len(os.listdir("/proc/self/fd")) <= before


@pytest.mark.parametrize("word", [KEEP, QUIT])
def test_a_zygote_that_was_told_how_it_ends_tells_nothing_any_more(
    word: str, channel: tuple[socket.socket, socket.socket]
) -> None:
    ours, theirs = channel
    nest = nest_at(theirs)
    for seat in range(MANY):  # nobody reads
        nest._say(Refused, wanted(seat), "words")
    ours.send(pickle.dumps(word))
    assert nest.serve() == word
    assert not nest._unsent
    ours.setblocking(False)
    with contextlib.suppress(BlockingIOError):
        while True:
            ours.recv(1000)
    nest._say(Refused, wanted(0), "words")
    with pytest.raises(BlockingIOError):
        ours.recv(1000)


def _with_grandchild(until: int, others: int) -> None:
    """Be a life that has started a process, which inherits all that this one has open."""
    os.close(others)
    if os.fork() == 0:
        os.read(until, 1)
        os._exit(0)
    os.read(until, 1)


@pytest.mark.filterwarnings("ignore:This process .* is multi-threaded:DeprecationWarning")
def test_all_lives_that_are_left_end_at_once_whoever_has_what_they_had_open(
    channel: tuple[socket.socket, socket.socket],
) -> None:
    nest = nest_at(channel[1])
    until, others = os.pipe()
    processes = []
    try:
        for seat in range(LIVES):
            process = _FORK.Process(target=_with_grandchild, args=(until, others), daemon=True)
            process.start()
            assert process.pid is not None
            pidfd = Descriptor(os.pidfd_open(process.pid))
            nest._lives[pidfd.number] = wanted(seat), process, pidfd
            nest._poller.register(pidfd.number, select.POLLIN)
            processes.append(process)
        time.sleep(0.2)  # they have started theirs
        nest._is_heard = False
        nest.see_off()
        began = time.monotonic()
        nest.end_all()
        assert time.monotonic() - began < LIVES * LEAVING_S / 2
        assert not nest._lives
        for process in processes:
            with pytest.raises(ProcessLookupError):  # its exit status was taken
                os.kill(process.pid or 0, 0)
    finally:
        os.close(others)
        os.close(until)


def test_what_only_the_kernel_has_work_with_is_not_waited_for_one_by_one(
    channel: tuple[socket.socket, socket.socket], monkeypatch: pytest.MonkeyPatch
) -> None:
    nest = nest_at(channel[1])
    monkeypatch.setattr(zygote_main.signal, "pidfd_send_signal", lambda *_: None)
    until, others = os.pipe()
    processes = []
    try:
        for seat in range(4):
            process = _FORK.Process(target=os.read, args=(until, 1), daemon=True)
            process.start()
            pidfd = Descriptor(os.pidfd_open(process.pid or 0))
            nest._lives[pidfd.number] = wanted(seat), process, pidfd
            nest._poller.register(pidfd.number, select.POLLIN)
            processes.append(process)
        began = time.monotonic()
        nest.end_all()
        assert LEAVING_S <= time.monotonic() - began < 3 * LEAVING_S
        assert not nest._lives
    finally:
        monkeypatch.undo()
        for process in processes:
            process.kill()
            process.join()
        os.close(others)
        os.close(until)
