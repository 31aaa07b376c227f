"""What an attacker has: programs that are made to deceive, and file systems that never answer."""

from __future__ import annotations

import contextlib
import ctypes
import os
import pty
import select
import struct
import subprocess
import sys
import textwrap
import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

BOUND_S = 120.0  # for one command: five times what it takes at most, on a busy machine
needs_root = pytest.mark.skipif(os.geteuid() != 0, reason="takes the part of another user: root")
NOBODY = 65534
# What must never reach a terminal, a log or a CI service as it is.
ESCAPES = "\x1b]0;owned\x07\x1b[2J\r\x9b\u202e"
FORBIDDEN = ("\x1b", "\x07", "\x9b", "\u202e", "\r")


@dataclass(frozen=True)
class Ran:
    code: int
    out: str
    err: str
    largest: int  # bytes of memory that it had

    @property
    def text(self) -> str:
        return self.out + self.err


def antifreeze(
    *words: str, cwd: Path | None = None, hurried: bool = False, **variables: str
) -> Ran:
    """Run the command as people do, with its output in pipes; it may not take for ever.

    hurried: `attach` watches who sleeps for two seconds, not for ten.
    """
    command = [sys.executable, "-c", _HURRIED + _MEASURED if hurried else _MEASURED, *words]
    done = subprocess.run(
        command,
        capture_output=True,
        timeout=BOUND_S,
        cwd=cwd,
        env=os.environ | variables,
        stdin=subprocess.DEVNULL,
    )
    err, _, largest = done.stderr.decode(errors="replace").rpartition("largest ")
    return Ran(done.returncode, done.stdout.decode(errors="replace"), err, int(largest) * 1024)


# Not `ru_maxrss`: that counts what the parent had when it started this process.
_MEASURED = """
import atexit, re, sys
def tell():
    with open("/proc/self/status") as file:
        print("largest", re.search(r"VmHWM:\\s+(\\d+)", file.read())[1], file=sys.stderr)
atexit.register(tell)
from antifreeze.cli import main
sys.exit(main(sys.argv[1:]))
"""


_HURRIED = """
import functools
from antifreeze.doctor.attach.gather import collect
collect.Manner = functools.partial(collect.Manner, patience_s=2.0)
"""


def on_a_terminal(*words: str, cwd: Path | None = None) -> str:
    """Run the command on a terminal of its own; return all that it wrote there."""
    child, number = pty.fork()
    if not child:
        try:
            if cwd is not None:
                os.chdir(cwd)
            os.execv(sys.executable, [sys.executable, "-m", "antifreeze", *words])
        finally:
            os._exit(127)
    found = b""
    deadline = time.monotonic() + BOUND_S
    try:
        while time.monotonic() < deadline:
            if select.select([number], [], [], 0.5)[0]:
                part = os.read(number, 1 << 16)
                if not part:
                    break
                found += part
    except OSError:  # it has ended: that is how a terminal says so
        pass
    finally:
        with contextlib.suppress(ProcessLookupError):
            os.kill(child, 9)
        os.waitpid(child, 0)
        os.close(number)
    return found.decode(errors="replace")


@contextlib.contextmanager
def victim(code: str, *words: str, folder: Path | None = None) -> Iterator[int]:
    """A Python program without torch that says `there` when it is as it should be."""
    command = [sys.executable, "-c", textwrap.dedent(code), *words]
    with subprocess.Popen(command, stdout=subprocess.PIPE, cwd=folder) as process:
        try:
            assert process.stdout is not None
            assert process.stdout.readline() == b"there\n"
            yield process.pid
        finally:
            process.kill()


@contextlib.contextmanager
def dead_file_system(folder: Path, *, listens: bool = False) -> Iterator[Path]:
    """A file system whose server never answers: all that touches it waits. `listens`: it takes the
    questions, and then whoever waits cannot be ended."""
    folder.mkdir()
    try:
        device = os.open("/dev/fuse", os.O_RDWR | os.O_CLOEXEC)
    except OSError as error:
        pytest.skip(f"no file systems of our own here: {error}")
    libc = ctypes.CDLL(None, use_errno=True)
    options = f"fd={device},rootmode=40000,user_id=0,group_id=0".encode()
    if libc.mount(b"dead", os.fsencode(folder), b"fuse", 0, options):
        os.close(device)
        pytest.skip(f"no file systems of our own here: {os.strerror(ctypes.get_errno())}")
    over = threading.Event()

    def listen() -> None:
        while not over.is_set():
            if select.select([device], [], [], 0.1)[0]:
                _answer_init(device, os.read(device, 1 << 18))

    thread = threading.Thread(target=listen)
    if listens:
        thread.start()
    try:
        yield folder
    finally:
        over.set()
        if listens:
            thread.join()
        os.close(device)  # whoever waits is told that it is gone
        libc.umount2(os.fsencode(folder), 2)


def _answer_init(device: int, question: bytes) -> None:
    """Answer the first question (FUSE_INIT), without which no other is asked; and no other."""
    _, kind, unique = struct.unpack_from("=IIQ", question)
    if kind != 26:
        return
    major, minor = struct.unpack_from("=II", question, 40)
    body = struct.pack("=IIIIHHIIHH", major, minor, 1 << 16, 0, 12, 9, 1 << 16, 1, 0, 0)
    body = body.ljust(64, b"\0")
    os.write(device, struct.pack("=IiQ", 16 + len(body), 0, unique) + body)
