"""The mailbox between a loader and `attach`: neither side harms the other, and nobody else can."""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from antifreeze._core.limits import LIMITS
from antifreeze._engine.attach_mailbox import NAME, Mailbox, ask

from ..patience import PATIENCE_S
from ..rogues.programs import line, program

ME = os.getpid()
needs_root = pytest.mark.skipif(os.geteuid() != 0, reason="takes the part of another user: root")


@contextmanager
def answering(text: bytes | None = b'{"pid": 1}', every_s: float = 0.02) -> Iterator[Mailbox]:
    """A program that answers, in this process; `None`: it never does."""
    mailbox, over = Mailbox(), threading.Event()

    def serve() -> None:
        while not over.wait(every_s):
            if text is not None and mailbox.is_asked:
                mailbox.answer(text)

    thread = threading.Thread(target=serve)
    thread.start()
    try:
        yield mailbox
    finally:
        over.set()
        thread.join()
        mailbox.close()


def test_who_asks_gets_the_answer_each_time_anew() -> None:
    mailbox = Mailbox()
    for number in range(3):
        thread = threading.Thread(target=_answer_once, args=(mailbox, number))
        thread.start()
        assert ask([ME]) == {ME: {"number": number}}
        thread.join()
    mailbox.close()
    assert ask([ME]) == {}


def _answer_once(mailbox: Mailbox, number: int) -> None:
    deadline = time.monotonic() + PATIENCE_S
    while not mailbox.is_asked and time.monotonic() < deadline:
        time.sleep(0.005)
    mailbox.answer(json.dumps({"number": number}).encode())


def test_several_who_ask_at_once_all_get_an_answer() -> None:
    found: list[object] = []
    with answering():
        askers = [threading.Thread(target=lambda: found.append(ask([ME]))) for _ in range(8)]
        for each in askers:
            each.start()
        for each in askers:
            each.join()
    assert found == [{ME: {"pid": 1}}] * 8


@pytest.mark.parametrize(
    "text",
    [
        b"[" * 200_000,
        b'{"a":' * 100_000 + b"1" + b"}" * 100_000,
        b'{"a": ' + b"9" * 10_000 + b"}",
        b"\xff\xfe not a text",
        b"[1]",
        b"null",
        b"",
    ],
    ids=["brackets", "objects", "digits", "bytes", "list", "null", "nothing"],
)
def test_an_answer_that_is_none_is_said_to_be_none(text: bytes) -> None:
    with answering(text):
        assert ask([ME]) == {ME: {"error": "its loader's answer cannot be read"}}


def test_an_answer_without_end_is_not_written() -> None:
    with answering(b'"' + b"x" * LIMITS.attach.answer_bytes + b'"'):
        assert ask([ME]) == {ME: {"error": "the answer of its loader is longer than 1 MiB"}}


def test_who_never_answers_is_waited_for_no_longer_than_was_asked_for() -> None:
    with answering(None):
        began = time.monotonic()
        said = ask([ME], 0.3)
        assert time.monotonic() - began < 5 * 0.3
    assert "no answer" in said[ME]["error"]


def test_who_writes_without_end_while_it_is_read_is_given_up() -> None:
    mailbox, over = Mailbox(), threading.Event()

    def scribble() -> None:
        number = mailbox._file
        assert number is not None
        while not over.is_set():
            os.pwrite(number, os.urandom(24), 24)

    thread = threading.Thread(target=scribble)
    thread.start()
    try:
        assert "error" in ask([ME], 0.3)[ME]
    finally:
        over.set()
        thread.join()
        mailbox.close()


def test_the_mailbox_of_a_parent_is_not_taken_for_a_workers_own() -> None:
    with answering():
        with subprocess.Popen(["sleep", "60"], close_fds=False) as child:
            assert ask([child.pid]) == {}
            child.kill()
        forked = os.fork()
        if not forked:
            time.sleep(60)
            os._exit(0)
        try:
            assert ask([ME, forked]) == {ME: {"pid": 1}}
        finally:
            os.kill(forked, 9)
            os.waitpid(forked, 0)


def test_it_can_neither_be_shrunk_nor_grown_nor_sealed_shut() -> None:
    mailbox = Mailbox()
    number = mailbox._file
    assert number is not None
    for size in (0, 1, 1 << 30):
        with pytest.raises(OSError):
            os.ftruncate(number, size)
    assert not os.get_inheritable(number)
    mailbox.close()


def test_a_file_that_only_has_the_name_is_left_alone(tmp_path: Path) -> None:
    """What is not the mailbox of that process is never written to."""
    others = os.memfd_create(NAME)
    os.write(others, b"x" * 200)
    try:
        assert ask([ME], 0.3) == {}
        assert os.pread(others, 300, 0) == b"x" * 200
        os.ftruncate(others, 3)
        assert ask([ME], 0.3) == {}
    finally:
        os.close(others)


LOADS = """
    iterator = iter(DataLoader(Numbers(1000), num_workers=1))
    next(iterator)
    say("ready")
    time.sleep(120)
"""

# Binds the name that a loader's socket once had, and connects as often as it can.
SQUATTER = """
import os, socket, sys
from antifreeze._engine.attach_mailbox import ask
os.setgroups([]); os.setgid(65534); os.setuid(65534)
pid = int(sys.argv[1])
squatted = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
squatted.bind(f"\\0antifreeze-{pid}")
squatted.listen(0)
kept = []
for _ in range(64):
    line = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    line.setblocking(False)
    try:
        line.connect(f"\\0antifreeze-{pid}")
    except OSError:
        break
    kept.append(line)
print(ask([pid], 1.0), flush=True)
sys.stdin.read()
"""


@needs_root
def test_another_user_gets_no_answer_and_keeps_nobody_from_one(tmp_path: Path) -> None:
    with program(tmp_path, LOADS) as process:
        assert line(process) == "ready"
        command = [sys.executable, "-c", SQUATTER, str(process.pid)]
        pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "text": True}
        with subprocess.Popen(command, cwd="/", **pipes) as other:
            assert other.stdout is not None and other.stdin is not None
            assert other.stdout.readline() == "{}\n"
            said = ask([process.pid], 5 * LIMITS.attach.answer_s)
            other.stdin.close()
    assert said[process.pid]["pid"] == process.pid
    assert len(said[process.pid]["loaders"]) == 1


def test_a_program_listens_nowhere(tmp_path: Path) -> None:
    """There is nothing that anybody could connect to."""
    with program(tmp_path, LOADS) as process:
        assert line(process) == "ready"
        deadline = time.monotonic() + PATIENCE_S
        while not ask([process.pid]) and time.monotonic() < deadline:
            time.sleep(0.05)
        assert ask([process.pid], 5 * LIMITS.attach.answer_s)[process.pid]["pid"] == process.pid
        caller = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        with caller, pytest.raises(ConnectionRefusedError):
            caller.connect(f"\0antifreeze-{process.pid}")
        assert f"antifreeze-{process.pid}" not in Path("/proc/net/unix").read_text(errors="replace")
