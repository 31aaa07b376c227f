"""One small program a row: a dataset with one thing wrong, and the loop of somebody who uses it.

Each program gets the loader's class and returns what the loop saw, in a few words. what.py runs it
in a process of its own, under a watchdog that ends it when it stands still.
"""

from __future__ import annotations

import logging
import os
import random
import re
import signal
import tempfile
import threading
import time
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import psutil
import torch
from torch.utils.data import IterableDataset

Loader = Callable[..., Any]
SAMPLES = 16
said: list[str] = []  # what warnings and the log have told


class Listener(logging.Handler):
    """Keep what is logged."""

    def emit(self, record: logging.LogRecord) -> None:
        said.append(record.getMessage())


def listen() -> None:
    """Keep what is warned of and logged, for the programs to show."""
    logging.getLogger("antifreeze").addHandler(Listener())
    warnings.showwarning = lambda message, *_: said.append(str(message))


class Numbers:
    """Integers; a program gives its own `get` for those that misbehave."""

    def __init__(self, get: Callable[[int], Any] = int, length: int = SAMPLES) -> None:
        self.get, self.length = get, length

    def __len__(self) -> int:
        return self.length

    def __getitem__(self, index: int) -> Any:
        return self.get(index)


def is_ours(loader: Loader) -> bool:
    """Tell our class from torch's, for the options that torch's does not have."""
    return loader.__module__.startswith("antifreeze")


def epoch(loader: Any) -> str:
    """Go through the loader; say what came, what was raised, and what was told meanwhile."""
    batches, samples, begin = 0, [], time.monotonic()
    words = ""
    try:
        for batch in loader:
            batches += 1
            samples += batch.tolist() if isinstance(batch, torch.Tensor) else []
    except Exception as error:
        words = f", then {in_brief(error)}"
    told = "; ".join(said)
    head = f"{batches} of {len(loader)} batches"
    if samples and samples != sorted(set(samples)):
        head += ", not each sample once and in order"
    return f"{head} in {time.monotonic() - begin:.1f} s{words}{'; said: ' if told else ''}{told}"


def in_brief(error: BaseException) -> str:
    """Write an error without its stack: the first line, what was raised in the worker, notes."""
    first, *rest = str(error).splitlines() or [""]
    raised = [found[1] for line in rest if (found := re.match(r"[\w .<>]*?(\w+: .*)", line))]
    notes = [note.strip() for note in getattr(error, "__notes__", ())]
    kind = type(error).__name__
    head = first if kind in first else f"{kind}: {first}".strip(": ")
    return " ".join([head, *raised[-1:], *notes])


# --- batches that cannot leave the worker ------------------------------------------------------


def batch_that_cannot_be_pickled(loader: Loader) -> str:
    """Put a generator into a batch."""

    def collate(samples: list[int]) -> Any:
        return {"now": samples, "later": (one for one in samples) if 9 in samples else None}

    return epoch(loader(Numbers(), 2, num_workers=2, collate_fn=collate))


def autograd(loader: Loader) -> str:
    """Compute a batch from something learnable."""
    scale = torch.ones(1, requires_grad=True)

    def collate(samples: list[int]) -> torch.Tensor:
        return torch.tensor(samples) * scale

    return epoch(loader(Numbers(), 2, num_workers=2, collate_fn=collate))


def exception_that_cannot_be_pickled(loader: Loader) -> str:
    """Raise an exception of a class that only exists inside a function."""

    class Broken(Exception):
        pass

    def get(index: int) -> int:
        if index == 9:
            raise Broken("the header is cut off")
        return index

    return epoch(loader(Numbers(get), 2, num_workers=2))


# --- workers and samples that fail -------------------------------------------------------------


def worker_killed(loader: Loader) -> str:
    """Kill the worker that loads sample 9, once, as the kernel does when memory runs out."""
    with tempfile.TemporaryDirectory() as folder:
        was_killed = Path(folder) / "was_killed"

        def get(index: int) -> int:
            if index == 9 and not was_killed.exists():
                was_killed.touch()
                os.kill(os.getpid(), signal.SIGKILL)
            return index

        return epoch(loader(Numbers(get), 2, num_workers=2))


def sample_never_returns(loader: Loader) -> str:
    """Wait for a server that does not answer. The program ends when it is told of it."""

    class Tell(logging.Handler):
        def emit(self, record: logging.LogRecord) -> None:
            print(f"after {time.monotonic() - begin:.0f} s said: {record.getMessage()}", flush=True)
            os._exit(0)

    def get(index: int) -> int:
        if index == 9:
            time.sleep(1000)
        return index

    logging.getLogger("antifreeze").addHandler(Tell())
    begin = time.monotonic()
    return epoch(loader(Numbers(get), 2, num_workers=2))


def sample_raises(loader: Loader) -> str:
    """Raise from a sample, with an attribute that says more."""

    def get(index: int) -> int:
        if index == 9:
            error = ValueError("the header is cut off")
            error.path = "9.jpg"  # type: ignore[attr-defined]
            raise error
        return index

    try:
        for _ in loader(Numbers(get), 2, num_workers=2):
            pass
    except ValueError as error:
        return f"{in_brief(error)}; its attribute: {getattr(error, 'path', 'lost')}"
    return "nothing"


def broken_samples(loader: Loader) -> str:
    """Have two samples that cannot be read; ours is told to go on without them."""

    def get(index: int) -> int:
        if index in (5, 9):
            raise OSError("the file is cut off")
        return index

    ours = {"on_error": "skip"} if is_ours(loader) else {}
    return epoch(loader(Numbers(get), 2, num_workers=2, **ours))


def stop_iteration(loader: Loader) -> str:
    """Let `next` on an empty iterator raise StopIteration out of a sample."""
    return epoch(loader(Numbers(lambda i: i if i != 9 else next(iter([]))), 2, num_workers=2))


def sampler_raises(loader: Loader) -> str:
    """Let the sampler fail after ten indices: five batches of two."""

    def indices() -> Iterator[int]:
        yield from range(10)
        raise RuntimeError("the index file is cut off")

    class Sampler:
        def __iter__(self) -> Iterator[int]:
            return indices()

        def __len__(self) -> int:
            return SAMPLES

    return epoch(loader(Numbers(), 2, num_workers=2, sampler=Sampler()))


# --- endings -----------------------------------------------------------------------------------


def loop_left(loader: Loader) -> str:
    """Leave the loop after its first batch, while both workers are busy with long samples."""

    def get(index: int) -> int:
        if index > 1:
            time.sleep(30)
        return index

    for _ in loader(Numbers(get), 1, num_workers=2):
        time.sleep(0.5)  # both have begun
        begin = time.monotonic()
        break
    del _
    return f"the loop was left in {time.monotonic() - begin:.2f} s"


def program_killed(loader: Loader) -> str:
    """Kill a program in the middle of an epoch; look at its workers 2 seconds later."""
    pids_read, pids_write = os.pipe()

    def get(index: int) -> int:
        os.write(pids_write, b"%d\n" % os.getpid())
        time.sleep(30)
        return index

    program = os.fork()
    if program == 0:
        next(iter(loader(Numbers(get), 1, num_workers=2)))
        os._exit(0)
    told = b""
    while told.count(b"\n") < 2:
        told += os.read(pids_read, 100)
    os.kill(program, signal.SIGKILL)
    os.waitpid(program, 0)
    time.sleep(2)
    left = [pid for pid in map(int, told.split()) if lives(pid)]
    for pid in left:
        os.kill(pid, signal.SIGKILL)
    return f"{len(left)} of 2 workers are left"


def lives(pid: int) -> bool:
    """Tell whether a process runs; one that waits to be buried does not."""
    try:
        return psutil.Process(pid).status() != psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return False


# --- wrong data --------------------------------------------------------------------------------


def number_of_workers(loader: Loader) -> str:
    """Load noisy samples from one seed with 0 to 3 workers."""

    def noisy(workers: int) -> list[float]:
        torch.manual_seed(7)
        data = loader(Numbers(lambda i: i + random.random()), 2, num_workers=workers)
        return torch.cat(list(data)).tolist()

    different = len({tuple(noisy(workers)) for workers in (0, 1, 2, 3)})
    return f"{different} different epochs from one seed with 0 to 3 workers"


def file_of_the_parent(loader: Loader) -> str:
    """Read records from a file that was opened before the workers were there."""
    with tempfile.TemporaryFile("w+b") as file:
        file.write(b"".join(b"%07d\n" % index for index in range(64)))
        file.flush()
        shared = open(f"/proc/self/fd/{file.fileno()}", "rb", buffering=0)  # noqa: SIM115

        def get(index: int) -> int:
            shared.seek(8 * index)
            time.sleep(0.002)  # some work, or a busy machine
            return int(shared.read(8) or b"-1")

        data = loader(Numbers(get, 64), 4, num_workers=2)
        found = torch.cat(list(data)).tolist()
        wrong = sum(value != index for index, value in enumerate(found))
        return f"{wrong} of 64 samples are wrong{', and no error' if wrong else ''}"


def lock_held_at_the_start(loader: Loader) -> str:
    """Start workers while another thread holds a lock that the dataset takes."""
    lock, held = threading.Lock(), threading.Event()

    def hold() -> None:
        with lock:
            held.set()
            time.sleep(1000)

    def get(index: int) -> int:
        with lock:
            return index

    threading.Thread(target=hold, daemon=True).start()
    held.wait()
    return epoch(loader(Numbers(get), 2, num_workers=2))


def lambda_under_spawn(loader: Loader) -> str:
    """Have a lambda in the dataset and workers that inherit nothing."""
    numbers = Numbers(lambda index: 2 * index)
    return epoch(loader(numbers, 2, num_workers=2, multiprocessing_context="spawn"))


class Stream(IterableDataset[int]):
    """Yield all samples, whichever worker asks."""

    def __iter__(self) -> Iterator[int]:
        return iter(range(SAMPLES))


def stream_not_parted(loader: Loader) -> str:
    """Let two workers read the same stream."""
    samples = torch.cat(list(loader(Stream(), 2, num_workers=2))).tolist()
    told = f"; said: {'; '.join(said)}" if said else ", and not a word"
    return f"{len(samples)} samples of {len(set(samples))}{told}"


def small_shared_memory(loader: Loader) -> str:
    """Send batches of 8 MB where /dev/shm has 4: what.py gives this program one of its own."""
    big = Numbers(lambda index: torch.full((2 << 20,), float(index)))
    return epoch(loader(big, 1, num_workers=2, collate_fn=lambda samples: samples))


def tiny_batches(loader: Loader) -> str:
    """Take integers one by one, with two workers and with none."""

    def best_of_three_s(workers: int) -> float:
        numbers = loader(Numbers(length=1000), 1, num_workers=workers)
        taken_s = []
        for _ in range(3):
            begin = time.monotonic()
            assert sum(len(batch) for batch in numbers) == 1000
            taken_s.append(time.monotonic() - begin)
        return min(taken_s)

    with_two, without = best_of_three_s(2), best_of_three_s(0)
    return f"1000 integers: {with_two:.2f} s with 2 workers, {without:.2f} s without"
