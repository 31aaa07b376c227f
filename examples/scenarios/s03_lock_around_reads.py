"""Scenario 3: a `multiprocessing.Lock` around the reads of all workers.

What people report: "several workers are no faster than one"; or "it hangs for ever after one
worker died", or after one sample raised.

What is true: files that each call opens need no lock (scenario 1). With one, workers take turns,
and the time of all reads adds up again. The lock belongs to nobody: a worker that dies with it, or
leaves the read in the middle by raising, takes it along, and all the others wait for ever.

Ours says who waits for what, and whom it was; when all workers that work wait for a lock whose
holder is gone, it is released, once.

What to look at: whether the epoch goes on after a worker died with the lock, and after a sample
raised with it; and what the lock costs while all goes well.
"""

from __future__ import annotations

import multiprocessing
import os
import signal
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from scenario import LOADERS, Outcomes, Pass, Report, Scenario, Verdict, perform
from torch.utils.data import Dataset

SAMPLES = 160
READ_S = 0.004  # from storage that is not near
BATCH_SIZE = 8
NUM_WORKERS = 2
FATAL = 37  # the sample at which something happens to whoever has the lock
STILL_S = 20.0  # without a batch: frozen

LOCKED, FREE = "with the lock", "without it"
DIES, RAISES = "a worker dies with it", "a sample raises with it"

Sample = tuple[int, int]


def make(folder: Path, quick: bool) -> None:
    """Write one file a sample."""
    for index in range(SAMPLES):
        (folder / f"{index}.txt").write_text(str(index * index))


class Files(Dataset[Sample]):
    """Read one file a sample."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def __len__(self) -> int:
        return SAMPLES

    def __getitem__(self, index: int) -> Sample:
        time.sleep(READ_S)
        return index, int((self.folder / f"{index}.txt").read_text())


class LockedFiles(Files):
    """The same, one worker at a time."""

    def __init__(self, folder: Path) -> None:
        super().__init__(folder)
        self.lock = multiprocessing.get_context("fork").Lock()
        self.happened = Path(tempfile.mkdtemp(dir=folder)) / "happened"

    def __getitem__(self, index: int) -> Sample:
        with self.lock:  # antifreeze: allow[lock-around-loading]
            self.mishap(index)
            return super().__getitem__(index)

    def mishap(self, index: int) -> None:
        """What happens, once, in the middle of a read."""


class Dying(LockedFiles):
    def mishap(self, index: int) -> None:
        if index == FATAL and not self.happened.exists():
            self.happened.touch()
            os.kill(os.getpid(), signal.SIGKILL)


class Raising(LockedFiles):
    """Takes the lock as people do who do not know `with`."""

    def __getitem__(self, index: int) -> Sample:
        self.lock.acquire()  # antifreeze: allow[lock-around-loading]
        if index == FATAL and not self.happened.exists():
            self.happened.touch()
            raise OSError(f"file {index} cannot be read")
        sample = Files.__getitem__(self, index)
        self.lock.release()
        return sample


def deliver(loader: Any) -> tuple[Pass, int]:
    """Take an epoch and go on after errors; count what came, and the errors."""
    came: list[Sample] = []
    errors, iterator = 0, iter(loader)
    begin = time.perf_counter()
    while errors < 5:
        try:
            indices, squares = next(iterator)
        except StopIteration:
            break
        except Exception as error:
            errors += 1
            print(f"error: {str(error).splitlines()[0]}", flush=True)
            continue
        came += zip(indices.tolist(), squares.tolist(), strict=True)
        print(f"batch: {len(came)}", flush=True)
    wrong = sum(square != index * index for index, square in came)
    seconds = time.perf_counter() - begin
    return Pass(len(came), wrong, 0, seconds), errors


def way(name: str, kind: type[Files]) -> Any:
    def load(loader_class: type[Any], folder: Path, quick: bool) -> Report:
        loader = loader_class(
            kind(folder), BATCH_SIZE, num_workers=NUM_WORKERS, multiprocessing_context="fork"
        )
        done, errors = deliver(loader)
        return Report({name: done}, {f"{name}: errors": errors})

    return load


def judge(outcomes: Outcomes) -> Verdict:
    """Say what the lock costs, and what came after the mishaps."""
    findings = []
    for loader in LOADERS:
        locked, free = outcomes.rate(loader, LOCKED), outcomes.rate(loader, FREE)
        if free.median:
            share = locked.median / free.median
            findings.append(f"{loader}: the lock leaves {share:.2f} of the samples a second")
    whole = {DIES: SAMPLES, RAISES: SAMPLES - BATCH_SIZE}
    ok = all(outcome.right for outcome in outcomes.antifreeze)
    for name, due in whole.items():
        for loader in LOADERS:
            for outcome in outcomes.of(loader, name):
                done = outcome.report.passes.get(name)
                came = "frozen" if done is None else f"{done.samples} of {SAMPLES} samples"
                if outcome.ended == "failed":
                    came = "the program ended with an error"
                findings.append(f"{loader}, {name}: {came}")
                if loader == "antifreeze":
                    ok = ok and done is not None and done.samples == due
    return Verdict(ok, tuple(findings))


SCENARIO = Scenario(
    number=3,
    title="a lock around the reads",
    make=make,
    load={
        LOCKED: way(LOCKED, LockedFiles),
        FREE: way(FREE, Files),
        DIES: way(DIES, Dying),
        RAISES: way(RAISES, Raising),
    },
    judge=judge,
    bound_s=90.0,
    still_s=STILL_S,
    rounds=1,
)

if __name__ == "__main__":
    sys.exit(perform(SCENARIO))
