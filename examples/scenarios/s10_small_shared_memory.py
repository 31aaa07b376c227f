"""Scenario 10: batches of 40 MB from four workers, in a container with 64 MB of /dev/shm.

What people report: "it works on my machine; in Docker it dies with a bus error or `No space left
on device`, or it stands still without a word".

What is true: the dataset is not in shared memory, the batches are. torch's workers hand a batch
over as a file in /dev/shm, and a container's /dev/shm has 64 MB unless `--shm-size` says
otherwise. Ten arrays of 4 MB make a batch of 40 MB; four workers prepare two batches each: 320 MB.
With the default collate the worker notices in time, and its error arrives. With a collate function
of one's own, the batch moves to /dev/shm only while it is being sent, in a thread whose error
nobody waits for: the batch is lost and the loop waits for ever. The often quoted `shmmax` limits
System V segments, which nobody uses here; raising it changes nothing.

What to look at: how the two ways end under torch, and that with ours the same mount stays empty.
Each run has a /dev/shm of its own, of Docker's size, in a private mount namespace; the third way
has room enough and shows how much torch would have needed.
"""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import torch
from scenario import LOADERS, Outcomes, Pass, Report, Scenario, Verdict, perform
from torch.utils.data import Dataset

DEFAULT, CUSTOM, ROOMY = "default collate", "custom collate", "default collate, room enough"
IN_FLIGHT = "in flight"
MB = 2**20
SHM = "/dev/shm"
SMALL_BYTES = 64 * MB  # what Docker gives when nobody asks for more
ROOMY_BYTES = 1024 * MB

ARRAYS, ARRAYS_QUICK = 100, 30
SIDE = 1024  # float32: 4 MB an array
BATCH_SIZE = 10
NUM_WORKERS = 4
PREFETCH = 2  # batches a worker prepares ahead: the default of both loaders
BATCH_BYTES = BATCH_SIZE * SIDE * SIDE * 4
IN_FLIGHT_BYTES = BATCH_BYTES * PREFETCH * NUM_WORKERS
# A batch takes a fraction of a second; so long without one means that none will come.
STILL_S = 10.0
# How long the workers get to prepare all they may before the loop asks for the first batch.
FILL_S = 3.0

MOUNT = 'mount -t tmpfs -o size="$1" tmpfs "$2" && shift 2 && exec "$@"'
NAMESPACES = (
    ("unshare", "--mount"),  # for root
    ("unshare", "--map-root-user", "--mount"),  # for others, where user namespaces are allowed
)


@cache
def own_shm(size_bytes: int) -> tuple[str, ...]:
    """Return what to put before a command to give it a /dev/shm of its own; empty if impossible.

    The mount exists in the command's own mount namespace only and is gone with its last process.
    """
    for namespace in NAMESPACES:
        prefix = (*namespace, "sh", "-c", MOUNT, "sh", str(size_bytes), SHM)
        try:
            tried = subprocess.run([*prefix, "true"], capture_output=True, timeout=10)
        except (OSError, subprocess.TimeoutExpired):
            continue
        if tried.returncode == 0:
            return prefix
    return ()


def within(way: str) -> Sequence[str]:
    """Give every way the /dev/shm it is about."""
    return own_shm(ROOMY_BYTES if way == ROOMY else SMALL_BYTES)


def shm_bytes() -> tuple[int, int]:
    """Return how large /dev/shm is, as this process sees it, and how much of it is in use."""
    room = os.statvfs(SHM)
    return room.f_blocks * room.f_frsize, (room.f_blocks - room.f_bfree) * room.f_frsize


class Arrays(Dataset[tuple[int, np.ndarray]]):
    """Arrays in ordinary memory; workers have them by being forked."""

    def __init__(self, length: int) -> None:
        self.arrays = [
            np.random.default_rng(index).random((SIDE, SIDE), dtype=np.float32)
            for index in range(length)
        ]

    def __len__(self) -> int:
        return len(self.arrays)

    def __getitem__(self, index: int) -> tuple[int, np.ndarray]:
        return index, self.arrays[index]


def stack(samples: Sequence[tuple[int, np.ndarray]]) -> tuple[torch.Tensor, torch.Tensor]:
    """Do what the default collate does, but as people write it: without shared memory in mind."""
    arrays = torch.stack([torch.from_numpy(array) for _, array in samples])
    return torch.tensor([index for index, _ in samples]), arrays


def make(folder: Path, quick: bool) -> None:
    """Make nothing: the arrays are in memory."""


def load_default(loader_class: type[Any], folder: Path, quick: bool) -> Report:
    """Load with the collate that writes into shared memory from the start."""
    return load(loader_class, DEFAULT, None, quick)


def load_custom(loader_class: type[Any], folder: Path, quick: bool) -> Report:
    """Load with a collate function that knows nothing of shared memory."""
    return load(loader_class, CUSTOM, stack, quick)


def load_roomy(loader_class: type[Any], folder: Path, quick: bool) -> Report:
    """Load with the default collate where there is room for it."""
    return load(loader_class, ROOMY, None, quick)


def load(
    loader_class: type[Any], way: str, collate: Callable[..., Any] | None, quick: bool
) -> Report:
    """Read one epoch and compare every number; watch what is taken of /dev/shm meanwhile."""
    dataset = Arrays(ARRAYS_QUICK if quick else ARRAYS)
    loader = loader_class(
        dataset,
        batch_size=BATCH_SIZE,
        num_workers=NUM_WORKERS,
        prefetch_factor=PREFETCH,
        collate_fn=collate,
    )
    before = shm_bytes()[1]
    done, peak = read_epoch(loader, dataset, before)
    facts = {f"{way}: peak": float(peak)}
    if way == ROOMY:
        facts[IN_FLIGHT] = taken_in_flight(loader, before)
    return Report({way: done}, facts)


def read_epoch(loader: Any, dataset: Arrays, before: int) -> tuple[Pass, int]:
    """Compare every number with the dataset's; return also the most that /dev/shm held."""
    print("loading", flush=True)  # from here on a line a batch: see STILL_S
    position = wrong = peak = 0
    begin = time.perf_counter()
    for indices, arrays in loader:
        peak = max(peak, shm_bytes()[1] - before)
        for index, array in zip(indices.tolist(), arrays, strict=True):
            wrong += index != position or not np.array_equal(array, dataset.arrays[index])
            position += 1
        print(f"{position} samples", flush=True)
    return Pass(position, wrong, len(dataset) - position, time.perf_counter() - begin), peak


def taken_in_flight(loader: Any, before: int) -> int:
    """Let the workers prepare all they may, take nothing, and look at /dev/shm."""
    batches = iter(loader)
    taken, deadline = 0, time.monotonic() + FILL_S
    while taken < IN_FLIGHT_BYTES and time.monotonic() < deadline:
        time.sleep(0.05)
        taken = max(taken, shm_bytes()[1] - before)
    del batches
    return taken


def judge(outcomes: Outcomes) -> Verdict:
    """Say what was needed and how each way ended; well if ours was right and used nothing."""
    private = bool(own_shm(SMALL_BYTES))
    size = SMALL_BYTES if private else shm_bytes()[0]
    findings = [
        f"in flight: {BATCH_BYTES / MB:.0f} MB a batch x {PREFETCH} x {NUM_WORKERS} workers = "
        f"{IN_FLIGHT_BYTES / MB:.0f} MB; /dev/shm had {size / MB:,.0f} MB"
    ]
    if not private:
        findings.append(
            "a /dev/shm of its own could not be had here (it takes root, or user namespaces): this "
            "is what happens with the machine's own, and what others put there counts as well"
        )
    for way in (DEFAULT, CUSTOM):
        for outcome in outcomes.of("torch", way)[:1]:
            still = f", no batch for {STILL_S:.0f} s" if outcome.ended == "frozen" else ""
            words = f"; its stderr ends: {outcome.last_words}" if outcome.last_words else ""
            findings.append(f"torch, {way}: {outcome.ended}{still}{words}")
    for loader in LOADERS:
        if outcomes.of(loader, ROOMY)[0].right:
            taken = outcomes.fact(loader, IN_FLIGHT).high / MB
            findings.append(f"{loader}, room enough: {taken:.0f} MB of /dev/shm taken, in flight")
    taken = max(outcomes.fact("antifreeze", f"{way}: peak").high for way in WAYS)
    findings.append(f"antifreeze, all ways: at most {taken / MB:.0f} MB of /dev/shm taken")
    ok = all(outcome.right for outcome in outcomes.antifreeze)
    return Verdict(ok and (taken == 0 or not private), tuple(findings))


WAYS = {DEFAULT: load_default, CUSTOM: load_custom, ROOMY: load_roomy}

SCENARIO = Scenario(
    number=10,
    title="big batches, small /dev/shm",
    make=make,
    load=WAYS,
    judge=judge,
    still_s=STILL_S,
    rounds=1,  # it is about how runs end, and a frozen one takes its time
    within=within,
)

if __name__ == "__main__":
    sys.exit(perform(SCENARIO))
