"""Run one program in a process of its own, watch how it ends, and say what it leaves behind."""

from __future__ import annotations

import os
import re
import textwrap
import time
from dataclasses import dataclass
from pathlib import Path

import antifreeze

from ..forked_programs import ForkedProgram
from ..members import end, new_mark, settled

# A program needs three to fifteen seconds; the rest is for a machine that is busy otherwise.
WATCHDOG_S = 75.0

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
    mark = new_mark()
    source = str(Path(antifreeze.__file__).parent.parent)
    paths = [source, *filter(None, [os.environ.get("PYTHONPATH")])]
    environment = os.environ | mark | {"PYTHONPATH": os.pathsep.join(paths)}
    begun = time.monotonic()
    process = ForkedProgram(script, env=environment, cwd=folder, into=folder)
    try:
        ended = _wait(process, folder / "err", until)
        seconds = time.monotonic() - begun
        left = settled(mark, process.pid) if ended is not None else ()
    finally:
        end(process, mark)
    texts = [(folder / name).read_text(errors="replace") for name in ("out", "err")]
    return Ending(ended, *texts, seconds, left)


def _wait(process: ForkedProgram, err: Path, until: tuple[str, ...]) -> int | None:
    give_up = time.monotonic() + WATCHDOG_S
    while time.monotonic() < give_up:
        if process.poll() is not None:
            return process.returncode
        if until and all(re.search(each, err.read_text(errors="replace")) for each in until):
            return None
        time.sleep(0.05)
    return None
