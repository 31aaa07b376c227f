"""A program as people have them: a context of an accelerator, threads of others, a large dataset.

programs.py starts it and tells it when to take its next step:

python benchmarks/real_program.py PROGRAM SIDE FOLDER ... (the rest is from lanes.py)
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch
from contenders import BY_KEY
from lanes import serve_script
from loops import touch, turn
from torch.utils.data import DataLoader, Dataset
from workloads import WORKLOADS, Workload

# Epochs of the moments, and where one is left.
BATCHES, LEAVE_AFTER = 20, 5
IMAGE_BATCHES, ROW_BATCHES = 40, 100
NAMES, ARRAY_BYTES = 2_000_000, 1 << 30
FEW_NAMES, SMALL_ARRAY_BYTES = 10_000, 1 << 16
CLASSES = 1000
# Batches until a replaced worker's turn has certainly come.
MOST_BATCHES = 1000


@dataclass(frozen=True, slots=True)
class Program:
    """What a program has beside its loader."""

    key: str
    what: str
    has_accelerator: bool = False
    has_threads: bool = False
    is_large: bool = False


PROGRAMS = (
    Program("plain", "nothing but the loader"),
    Program("accelerator", "an accelerator's context", has_accelerator=True),
    Program("threads", "TensorBoard, an executor, an asyncio loop", has_threads=True),
    Program(
        "both",
        "both, with 2 million names and 1 GiB in the dataset",
        has_accelerator=True,
        has_threads=True,
        is_large=True,
    ),
)


class Named(Dataset[tuple[Any, int]]):
    """Samples with labels: a label comes from the sample's name and from a table.

    The same code in each program; only how much is held differs.
    """

    def __init__(self, samples: Dataset[Any], names: list[str], table: np.ndarray) -> None:
        self.samples, self.names, self.table = samples, names, table

    def __len__(self) -> int:
        return len(self.samples)  # type: ignore[arg-type]

    def __getitem__(self, index: int) -> tuple[Any, int]:
        name = self.names[index % len(self.names)]
        weight = self.table[index % len(self.table)]
        return self.samples[index], int(name[6:10]) * int(weight)


class Numbers(Dataset[int]):
    """The number of the process that loads a sample."""

    def __len__(self) -> int:
        return 4 * MOST_BATCHES

    def __getitem__(self, index: int) -> int:
        return os.getpid()


def begin_accelerator() -> str:
    """Make a context: a real one where there is a device; else let torch say that there is one."""
    if torch.cuda.is_available():
        torch.ones(1, device="cuda")
        return torch.cuda.get_device_name()
    torch.cuda._initialized = True
    assert torch.cuda.is_initialized()
    return "none: a stand-in"


def begin_threads(folder: str) -> Callable[[int], None]:
    """Start what many programs have running. Return what logs a step."""
    from torch.utils.tensorboard import SummaryWriter

    writer = SummaryWriter(folder)
    executor = ThreadPoolExecutor(4)
    executor.submit(os.getpid).result()
    loop = asyncio.new_event_loop()
    threading.Thread(target=loop.run_forever, daemon=True).start()
    asyncio.run_coroutine_threadsafe(asyncio.sleep(0), loop).result()
    _kept.extend([writer, executor, loop])
    return lambda step: writer.add_scalar("loss", 1 / (1 + step), step)


_kept: list[Any] = []  # for as long as the program runs


def steps(program_key: str, side: str, folder: str) -> Iterator[Any]:
    """Yield what was measured, in the order of `programs.MEASURES`, after a word when ready."""
    program = next(each for each in PROGRAMS if each.key == program_key)
    written, kept = BY_KEY[f"{side}-plain"], BY_KEY[side]
    written.load()
    accelerator = begin_accelerator() if program.has_accelerator else ""
    log = begin_threads(folder) if program.has_threads else lambda step: None
    names = [
        f"train/{number % CLASSES:04d}/{number:08d}.jpg"
        for number in range(NAMES if program.is_large else FEW_NAMES)
    ]
    table = np.ones(ARRAY_BYTES if program.is_large else SMALL_ARRAY_BYTES, dtype=np.uint8)

    def named(name: str, batches: int) -> tuple[Dataset[Any], Workload]:
        workload = replace(next(each for each in WORKLOADS if each.name == name), batches=batches)
        return Named(workload.dataset(workload.samples), names, table), workload

    tokens, images, rows = (
        named("tokens", BATCHES),
        named("uint8-images", IMAGE_BATCHES),
        named("rows", ROW_BATCHES),
    )
    yield accelerator
    yield from epochs(lambda: written.make(*tokens), log)
    if side == "antifreeze":
        few = Workload("numbers", "", 4, MOST_BATCHES, lambda _: Numbers())
        yield replaced_s(written.make(Named(Numbers(), names, table), few))
    else:
        yield first_s(written.make(*tokens))
    loader = kept.make(*images)
    yield rate(loader, images[1])
    iterator = iter(loader)
    for _ in range(IMAGE_BATCHES // 2):
        batch = next(iterator)
        int(batch[0].sum())  # reads all of it, as a training step does: only then is it mapped
    yield None  # in the middle of an epoch, with a batch in hand: its memory is looked at
    del batch, iterator, loader
    yield rate(kept.make(*rows), rows[1])


def epochs(make: Callable[[], Any], log: Callable[[int], None]) -> Iterator[float]:
    """Time the first batch of a loader, the next epoch's first, and the first after a `break`."""
    begin = time.perf_counter()
    loader = make()
    iterator = iter(loader)
    touch(next(iterator))
    yield time.perf_counter() - begin
    for _ in range(BATCHES - 1):
        touch(next(iterator))
    begin = time.perf_counter()  # with the last batch: the end of the workers is part of it
    for _ in iterator:
        raise RuntimeError("a batch too many")
    log(1)
    iterator = iter(loader)
    touch(next(iterator))
    yield time.perf_counter() - begin
    for _ in range(LEAVE_AFTER - 1):
        touch(next(iterator))
    begin = time.perf_counter()
    del iterator
    log(2)
    iterator = iter(loader)
    touch(next(iterator))
    yield time.perf_counter() - begin


def first_s(loader: DataLoader[Any]) -> float:
    """Time a later loader's first batch: what a lost worker costs torch at the least."""
    begin = time.perf_counter()
    touch(next(iter(loader)))
    return time.perf_counter() - begin


def replaced_s(loader: Any) -> float:
    """Time from killing a worker to the first batch that another one has loaded in its place."""
    iterator = iter(loader)
    touch(next(iterator))
    known = {worker.pid for worker in iterator._workers}
    begin = time.perf_counter()
    with contextlib.suppress(ProcessLookupError):
        os.kill(iterator._workers[0].pid, signal.SIGKILL)
    for numbers, _ in iterator:
        if int(numbers[0]) not in known:
            return time.perf_counter() - begin
    raise RuntimeError("no worker was replaced")


def rate(loader: Any, workload: Workload) -> float:
    """Return samples a second, in epochs after the first."""
    turn(loader, workload.batches, 0.0)
    done = turn(loader, workload.batches, 0.15)
    return done.batches * workload.batch_size / done.seconds


if __name__ == "__main__":
    serve_script(steps)
