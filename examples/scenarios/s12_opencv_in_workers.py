"""Scenario 12: OpenCV in the main process first, then in forked workers.

What people report: "OpenCV and `num_workers` do not go together; it hangs or crashes until I set
OPENCV_OPENMP_NUM_THREADS=1".

What is true: OpenCV keeps a pool of threads, and a fork copies the record of a pool but not its
threads. Merely using it afterwards is safe, in OpenCV 5.0: the worker finds that nobody helps and
does all the work itself, with the right pixels, while `cv2.getNumThreads` goes on naming threads
that are not there. A worker whose main process never used the pool starts one of its own: workers
x threads, for cores that are taken already. Who wants neither says `cv2.setNumThreads(0)`; that is
safe in a worker. `cv2.setNumThreads(1)` is not, where the main process has used the pool: it
waits for the threads to end, and there are none. antifreeze lays the pool down before the fork and
caps it in workers, so there both are safe, and no worker has a pool.

The variable people quote is no switch at all: OpenCV does not contain its name.
`OPENCV_FOR_THREADS_NUM` and `cv2.setNumThreads` are.

What to look at: threads a worker, with and without the pool; what a forked child makes of the two
calls, without any loader; and which of the variables does something.
"""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import cv2
import numpy as np
import torch
from scenario import LOADERS, Outcomes, Report, Scenario, Verdict, count_warm, perform
from torch.utils.data import Dataset

FRESH, BEFORE, ZERO = "first used in workers", "used before", "used before, set to 0"

PICTURES, PICTURES_QUICK = 64, 32
SIDE, SMALL_SIDE = 512, 64
BATCH_SIZE = 4
NUM_WORKERS = 4
EPOCHS = 2
# As on a machine with four cores, wherever this runs.
POOL_THREADS = 4
# The call takes a fraction of a millisecond, or for ever.
CALL_BOUND_S = 2.0
# The pool's threads look for more work for a moment before they sleep.
REST_S = 0.2
SWITCH, NO_SWITCH = "OPENCV_FOR_THREADS_NUM", "OPENCV_OPENMP_NUM_THREADS"


def picture(index: int) -> np.ndarray:
    """Return picture number `index`."""
    return np.random.default_rng(index).integers(0, 256, (SIDE, SIDE, 3), dtype=np.uint8)


def transform(pixels: np.ndarray) -> np.ndarray:
    """Do what pipelines do with OpenCV. It is large enough for OpenCV to ask its pool for help."""
    smooth = cv2.GaussianBlur(pixels, (9, 9), 0)
    small = cv2.resize(smooth, (SMALL_SIDE, SMALL_SIDE), interpolation=cv2.INTER_AREA)
    return cv2.cvtColor(small, cv2.COLOR_BGR2RGB)


def make(folder: Path, quick: bool) -> None:
    """Write what every sample must become; the loop is not to use OpenCV for that."""
    cv2.setNumThreads(1)
    pictures = range(PICTURES_QUICK if quick else PICTURES)
    np.save(folder / "expected.npy", np.stack([transform(picture(index)) for index in pictures]))


class Pictures(Dataset[tuple[int, np.ndarray, int]]):
    """Pictures in memory, transformed by OpenCV; each says how many threads its process has."""

    def __init__(self, length: int) -> None:
        self.pictures = [picture(index) for index in range(length)]

    def __len__(self) -> int:
        return len(self.pictures)

    def __getitem__(self, index: int) -> tuple[int, np.ndarray, int]:
        return index, transform(self.pictures[index]), threads_here()


def threads_here() -> int:
    """Count the threads of this process that work: not the one that watches a worker."""
    count = 0
    for task in Path("/proc/self/task").iterdir():
        with contextlib.suppress(OSError):  # it has ended
            count += (task / "comm").read_text().strip() != "antifreeze"
    return count


def be_alone(worker: int) -> None:
    """Tell OpenCV in a worker to do without threads."""
    cv2.setNumThreads(0)


def load(loader_class: type[Any], folder: Path, quick: bool) -> Report:
    """Transform all pictures in workers, three times over, and compare every pixel."""
    expected = torch.from_numpy(np.load(folder / "expected.npy"))
    cv2.setNumThreads(POOL_THREADS)
    pictures = Pictures(len(expected))
    passes, facts = {}, {}
    for way in (FRESH, BEFORE, ZERO):  # in this order: what the main process has used stays used
        if way != FRESH:
            transform(pictures.pictures[0])  # now the pool has its threads
        most_threads = 0

        def is_right(index: int, pixels: torch.Tensor, threads: torch.Tensor) -> bool:
            nonlocal most_threads
            most_threads = max(most_threads, int(threads))
            return torch.equal(pixels, expected[index])

        loader = loader_class(
            pictures,
            batch_size=BATCH_SIZE,
            num_workers=NUM_WORKERS,
            persistent_workers=True,
            worker_init_fn=be_alone if way == ZERO else None,
        )
        passes[way] = count_warm(loader, 1 if quick else EPOCHS, is_right, len(expected))
        facts[way] = float(most_threads)
    return Report(passes, facts)


def returns(number: int) -> bool:
    """Tell whether setNumThreads comes back in a forked child, without any loader. Bounded."""
    cv2.setNumThreads(POOL_THREADS)
    transform(picture(0))
    time.sleep(REST_S)
    child = os.fork()
    if not child:
        signal.alarm(int(10 * CALL_BOUND_S))  # should whoever waits for it be killed meanwhile
        cv2.setNumThreads(number)
        os._exit(0)
    deadline = time.monotonic() + CALL_BOUND_S
    while time.monotonic() < deadline:
        if os.waitpid(child, os.WNOHANG)[0]:
            return True
        time.sleep(0.01)
    os.kill(child, signal.SIGKILL)
    os.waitpid(child, 0)
    return False


def threads_with(**variables: str) -> int:
    """Ask a new interpreter how many threads OpenCV has, with such variables set."""
    others = {name: value for name, value in os.environ.items() if name not in (SWITCH, NO_SWITCH)}
    command = [sys.executable, "-c", "import cv2; print(cv2.getNumThreads())"]
    return int(subprocess.check_output(command, env=others | variables, timeout=30))


def judge(outcomes: Outcomes) -> Verdict:
    """Say who has which threads and what the switches do; well if every pixel was right."""
    findings = []
    for loader in LOADERS:
        fresh, before, zero = (outcomes.fact(loader, way).high for way in (FRESH, BEFORE, ZERO))
        findings.append(
            f"{loader}: threads a worker: {before:.0f} where the pool was used before the fork, "
            f"{fresh:.0f} where it was not, {zero:.0f} after setNumThreads(0)"
        )
    # The rest is about OpenCV alone, and looked at once.
    for number in (0, 1):
        words = "returns" if returns(number) else f"had not returned after {CALL_BOUND_S:.0f} s"
        findings.append(
            f"setNumThreads({number}) in a forked child, no loader, pool used before: {words}"
        )
    usual = threads_with()
    for name in (SWITCH, NO_SWITCH):
        found = threads_with(**{name: str(usual + 1)})
        what = "changes nothing" if found == usual else "is a switch"
        findings.append(f"{name}={usual + 1}: {usual} threads become {found}: {what}")
    ok = all(outcome.right for outcome in outcomes.torch + outcomes.antifreeze)
    return Verdict(ok, tuple(findings))


SCENARIO = Scenario(
    number=12,
    title="OpenCV in the main process and in workers",
    make=make,
    load=load,
    judge=judge,
)

if __name__ == "__main__":
    sys.exit(perform(SCENARIO))
