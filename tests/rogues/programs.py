"""Small programs that are killed, starved and interrupted from outside, and a way to watch them."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import textwrap
import time
from collections.abc import Iterator, Mapping
from pathlib import Path

import psutil

from ..forked_programs import ForkedProgram
from ..patience import PATIENCE_S

AnyProgram = subprocess.Popen[str] | ForkedProgram

PRELUDE = """
import os, signal, sys, threading, time
import torch
from antifreeze import DataLoader

class Numbers:
    def __init__(self, length=1000, nap_s=0.0):
        self.length, self.nap_s = length, nap_s
    def __len__(self):
        return self.length
    def __getitem__(self, index):
        time.sleep(self.nap_s)
        return index

def say(*words):
    print(*words, flush=True)
"""


@contextlib.contextmanager
def program(
    folder: Path,
    code: str,
    *,
    env: Mapping[str, str] | None = None,
    cwd: Path | None = None,
    anew: bool = False,
) -> Iterator[AnyProgram]:
    """Run a program in a session of its own; whatever is left of it in the end is ended.

    It begins where torch is imported already; `anew`: as Python starts, with all that the C library
    reads of its environment.
    """
    script = folder / "program.py"
    script.write_text(PRELUDE + textwrap.dedent(code))
    process: AnyProgram
    if anew:
        pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True}
        command = [sys.executable, str(script)]
        process = subprocess.Popen(command, **pipes, start_new_session=True, env=env, cwd=cwd)
    else:
        process = ForkedProgram(script, env=env, cwd=cwd)
    try:
        yield process
    finally:
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(process.pid, signal.SIGKILL)
        process.communicate()


def line(process: AnyProgram) -> str:
    """Read one line the program says; an empty one if it has ended."""
    assert process.stdout is not None
    return process.stdout.readline().strip()


def finish(process: AnyProgram) -> tuple[int, str, str]:
    """Wait for the end; give exit code, the rest of stdout, and stderr."""
    out, err = process.communicate(timeout=PATIENCE_S)
    return process.returncode, out, err


def all_gone(pids: list[int], within_s: float = PATIENCE_S) -> bool:
    """Say whether none of these processes is alive any more (a zombie is not alive)."""
    give_up = time.monotonic() + within_s
    while time.monotonic() < give_up:
        if not any(is_alive(pid) for pid in pids):
            return True
        time.sleep(0.02)
    return False


def is_alive(pid: int) -> bool:
    try:
        return psutil.Process(pid).status() != psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return False
