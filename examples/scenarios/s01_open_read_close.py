"""Scenario 1: each sample opens its file, reads it and closes it, in many workers at once.

What people report: "my loader freezes with several workers, and I was told that reading files in
__getitem__ is not safe without a lock".

What is true: it is safe. Every `open` gives an open file of its own, with an offset of its own;
several processes may read the same file or different files at the same time, and no byte is ever
wrong. A `multiprocessing.Lock` around the read repairs nothing. Its price is that only one worker
reads at a time: nothing to see while the files are in the page cache and a read takes a few
microseconds, most of the throughput when the storage has a latency. And a worker that is killed
while it holds the lock stops all others.

What to look at: the two rows with a lock. Both loaders read every byte right without it. The
slow storage is made here by a wait inside the read, as a network file system would wait.
"""

from __future__ import annotations

import multiprocessing
import random
import sys
import time
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path
from typing import Any

import torch
from scenario import Outcomes, Report, Scenario, Verdict, count_warm, perform
from torch.utils.data import Dataset

CACHED, CACHED_LOCKED = "page cache", "page cache, locked"
FAR, FAR_LOCKED = "2 ms away", "2 ms away, locked"

FILE_BYTES = 64 * 1024
FILES, FILES_QUICK = 256, 48
# Reads from the page cache are over so soon that one epoch would tell nothing.
EPOCHS = {CACHED: 5, CACHED_LOCKED: 5, FAR: 2, FAR_LOCKED: 1}
BATCH_SIZE = 4
NUM_WORKERS = 4
# A round trip to a disk array or an object store nearby.
LATENCY_S = 0.002


def content(index: int) -> bytes:
    """Return what file number `index` must hold."""
    return random.Random(index).randbytes(FILE_BYTES)


def make(folder: Path, quick: bool) -> None:
    """Write the files."""
    for index in range(FILES_QUICK if quick else FILES):
        (folder / f"{index:04d}.bin").write_bytes(content(index))


class Files(Dataset[tuple[int, torch.Tensor]]):
    """A file a sample: open, read, close. With a lock only one worker at a time may do so."""

    def __init__(self, folder: Path, latency_s: float, locked: bool) -> None:
        self.paths = sorted(folder.glob("*.bin"))
        self.latency_s = latency_s
        self.gate: AbstractContextManager[Any] = multiprocessing.Lock() if locked else nullcontext()

    def __len__(self) -> int:
        return len(self.paths)

    def __getitem__(self, index: int) -> tuple[int, torch.Tensor]:
        with (
            self.gate,
            open(self.paths[index], "rb") as file,
        ):  # antifreeze: allow[lock-around-loading]
            if self.latency_s:
                time.sleep(self.latency_s)
            data = file.read()
        return index, torch.frombuffer(bytearray(data), dtype=torch.uint8)


def load(loader_class: type[Any], folder: Path, quick: bool) -> Report:
    """Load with and without the lock, from near and far, and compare every byte."""
    ways = {
        CACHED: Files(folder, 0, locked=False),
        CACHED_LOCKED: Files(folder, 0, locked=True),
        FAR: Files(folder, LATENCY_S, locked=False),
        FAR_LOCKED: Files(folder, LATENCY_S, locked=True),
    }
    expected = [
        torch.frombuffer(bytearray(content(index)), dtype=torch.uint8)
        for index in range(FILES_QUICK if quick else FILES)
    ]

    def is_right(index: int, data: torch.Tensor) -> bool:
        return torch.equal(data, expected[index])

    passes = {}
    for name, files in ways.items():
        loader = loader_class(
            files, batch_size=BATCH_SIZE, num_workers=NUM_WORKERS, persistent_workers=True
        )
        passes[name] = count_warm(loader, 1 if quick else EPOCHS[name], is_right, len(expected))
    return Report(passes, {})


def judge(outcomes: Outcomes) -> Verdict:
    """Say what the lock costs; all is well if every byte was right and nobody complained."""
    findings = []
    for loader in ("torch", "antifreeze"):
        for free, locked in ((CACHED, CACHED_LOCKED), (FAR, FAR_LOCKED)):
            without = outcomes.rate(loader, free).median
            within = outcomes.rate(loader, locked).median
            if without and within:
                share = within / without
                findings.append(f"{loader}, {free}: the lock leaves {share:.0%} of the throughput")
    complaints = sum(outcome.stderr_bytes for outcome in outcomes.antifreeze)
    findings.append(f"antifreeze flags nothing: {complaints} bytes on stderr")
    ok = all(outcome.right for outcome in outcomes.torch + outcomes.antifreeze)
    return Verdict(ok and complaints == 0, tuple(findings))


SCENARIO = Scenario(
    number=1,
    title="each sample opens, reads and closes its file",
    make=make,
    load=load,
    judge=judge,
)

if __name__ == "__main__":
    sys.exit(perform(SCENARIO))
