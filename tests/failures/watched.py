"""Run one program in a process of its own, watch how it ends, and say what it leaves behind."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import textwrap
import time
import uuid
from dataclasses import dataclass
from pathlib import Path

import psutil

import antifreeze

# A program needs three to fifteen seconds; the rest is for a machine that is busy otherwise.
WATCHDOG_S = 75.0
SETTLE_S = 5.0  # for processes that have been told to end
MARK = "FAILURES_PROGRAM"

PRELUDE = """
import os, signal, sys, threading, time
import numpy as np
import torch
from torch.utils.data import Dataset, IterableDataset, get_worker_info
from antifreeze import DataLoader

class Numbers(Dataset):
    def __init__(self, length=40):
        self.length = length
    def __len__(self):
        return self.length
    def __getitem__(self, index):
        return index

def check(loader, length=40):
    assert torch.cat(list(loader)).tolist() == list(range(length))
"""


@dataclass(frozen=True, slots=True)
class Ending:
    """How a program ended. No code: it was ended by the watchdog, or when it had said enough."""

    code: int | None
    out: str
    err: str
    seconds: float
    left: tuple[str, ...]

    def __str__(self) -> str:
        return (
            f"code {self.code} after {self.seconds:.1f} s, left behind: {self.left}\n"
            f"--- stdout\n{self.out[-2000:]}\n--- stderr\n{self.err[-4000:]}"
        )


def run(code: str, folder: Path, until: tuple[str, ...] = ()) -> Ending:
    """Run a program to its end, or until its stderr has all these words."""
    folder.mkdir()
    script = folder / "program.py"
    script.write_text(PRELUDE + textwrap.dedent(code))
    mark = uuid.uuid4().hex
    source = str(Path(antifreeze.__file__).parent.parent)
    paths = [source, *filter(None, [os.environ.get("PYTHONPATH")])]
    environment = os.environ | {MARK: mark, "PYTHONPATH": os.pathsep.join(paths)}
    begun = time.monotonic()
    with (folder / "out").open("w") as out, (folder / "err").open("w") as err:
        process = subprocess.Popen(
            [sys.executable, str(script)],
            stdin=subprocess.DEVNULL,
            stdout=out,
            stderr=err,
            env=environment,
            cwd=folder,
            start_new_session=True,
        )
        try:
            ended = _wait(process, folder / "err", until)
            seconds = time.monotonic() - begun
            left = _settled(mark) if ended is not None else ()
        finally:
            _end(process, mark)
    texts = [(folder / name).read_text(errors="replace") for name in ("out", "err")]
    return Ending(ended, *texts, seconds, left)


def _wait(process: subprocess.Popen[bytes], err: Path, until: tuple[str, ...]) -> int | None:
    give_up = time.monotonic() + WATCHDOG_S
    while time.monotonic() < give_up:
        if process.poll() is not None:
            return process.returncode
        if until and all(re.search(each, err.read_text(errors="replace")) for each in until):
            return None
        time.sleep(0.05)
    return None


def _settled(mark: str) -> tuple[str, ...]:
    """Give what is still alive of a program that has ended, after a moment."""
    give_up = time.monotonic() + SETTLE_S
    while (alive := _members(mark)) and time.monotonic() < give_up:
        time.sleep(0.1)
    return tuple(str(each) for each in alive)


def _members(mark: str) -> list[psutil.Process]:
    found = []
    for process in psutil.process_iter():
        try:
            if process.status() != psutil.STATUS_ZOMBIE and process.environ().get(MARK) == mark:
                found.append(process)
        except psutil.Error:
            continue  # it has ended meanwhile, or is none of ours
    return found


def _end(process: subprocess.Popen[bytes], mark: str) -> None:
    for member in _members(mark):
        try:
            member.send_signal(signal.SIGKILL)
        except psutil.Error:
            continue
    if process.poll() is None:
        process.kill()
    process.wait(timeout=30)
