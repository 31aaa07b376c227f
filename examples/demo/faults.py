"""Load the demo's pictures with three faults among them, with torch's loader or with antifreeze's.

Ours gets all three in one epoch; torch's gets an epoch for each, because none comes to its end. The
one that never comes back is the last: whoever watches this script ends it. Prints one JSON object a
line on stdout: `begun`, a `batch` for each batch, a `fault` for each one of the loader, `ended`.
"""

from __future__ import annotations

import argparse
import faulthandler
import logging
import os
import signal
import time
from collections import Counter
from pathlib import Path
from typing import Any

import torch
from pictures import COUNT
from train import BATCH_SIZE, NUM_WORKERS, Pictures, loader_class, tell

BROKEN, KILLED, HANGS = 37, 150, 90
# Twice that is what the sample that hangs costs; a picture is decoded in a few milliseconds.
SAMPLE_TIMEOUT_S = 1.0
BOUND_S = 60.0


def break_picture(data: Path) -> None:
    """Put half of a picture into the folder `broken`, under the name of the whole one."""
    whole = Pictures(data).paths[BROKEN]
    broken = data / "broken" / whole.name
    broken.parent.mkdir(exist_ok=True)
    broken.write_bytes(whole.read_bytes()[: whole.stat().st_size // 2])


class FaultyPictures(Pictures):
    """The pictures, with those faults that are asked for."""

    def __init__(self, data: Path, faults: tuple[int, ...]) -> None:
        super().__init__(data)
        self.faults = faults
        self.was_killed = data / "was_killed"
        self.was_killed.unlink(missing_ok=True)
        if BROKEN in faults:
            self.paths[BROKEN] = data / "broken" / self.paths[BROKEN].name

    def __getitem__(self, index: int) -> Any:
        if index in self.faults:
            if index == HANGS:
                time.sleep(1000)  # a server that does not answer
            if index == KILLED and not self.was_killed.exists():
                self.was_killed.touch()
                os.kill(os.getpid(), signal.SIGKILL)  # what the kernel does when memory runs out
        image, label = super().__getitem__(index)
        return index, image, label


def one_epoch(name: str, dataset: FaultyPictures) -> None:
    """Take every batch of an epoch; tell what comes, and what the loader has noted of faults."""
    ours = {"on_error": "skip", "sample_timeout": SAMPLE_TIMEOUT_S} if name == "antifreeze" else {}
    loader = loader_class(name)(dataset, BATCH_SIZE, num_workers=NUM_WORKERS, **ours)
    tell("begun", faults=dataset.faults, batches=len(loader))
    seen: Counter[int] = Counter()
    batch, told, error, begin = 0, 0, "", time.perf_counter()
    try:
        for batch, (indices, *_) in enumerate(loader, 1):
            seen.update(indices.tolist())
            tell("batch", batch=batch)
            told = tell_faults(loader, told)
    except Exception as raised:
        error = f"{type(raised).__name__}: {raised}"
    tell_faults(loader, told)
    tell(
        "ended",
        error=error,
        samples=seen.total(),
        missing=sorted(set(range(COUNT)) - set(seen)),
        seconds=time.perf_counter() - begin,
    )


def tell_faults(loader: Any, told: int) -> int:
    """Tell the faults that have come since; return how many there are. torch's keeps none."""
    faults = list(getattr(loader, "faults", ()))
    for fault in faults[told:]:
        facts = {name: getattr(fault, name) for name in ("index", "kind", "verdict", "attempt")}
        tell("fault", what=fault.exception, **facts)
    return len(faults)


def main() -> None:
    """Go through the epochs of one loader."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--loader", choices=("torch", "antifreeze"), required=True)
    parser.add_argument("--data", type=Path, required=True, help="folder made by pictures.py")
    options = parser.parse_args()
    # If whoever watches dies first, this must still end.
    faulthandler.dump_traceback_later(BOUND_S, exit=True)
    logging.getLogger("antifreeze").setLevel(logging.ERROR)  # the faults are told as data
    torch.set_num_threads(1)
    break_picture(options.data)
    each = [(BROKEN,), (KILLED,), (HANGS,)]
    for faults in each if options.loader == "torch" else [(BROKEN, KILLED, HANGS)]:
        one_epoch(options.loader, FaultyPictures(options.data, faults))


if __name__ == "__main__":
    main()
