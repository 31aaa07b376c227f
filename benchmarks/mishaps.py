"""A dataset with one mishap: a sample that kills its worker, or never comes back, once."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Callable
from pathlib import Path

from torch.utils.data import Dataset

SAMPLES = 64
SAMPLE_S = 0.001
BATCH = 8
AT = 20  # the sample with the mishap: in the third batch, so that the loader is under way


def die() -> None:
    os.kill(os.getpid(), signal.SIGKILL)


def hang() -> None:
    time.sleep(1000)


DEEDS: dict[str, Callable[[], object]] = {"worker killed": die, "sample hangs": hang}


class Mishap(Dataset[int]):
    """Samples of a millisecond; one of them is lost, once, and the time of that is written down."""

    def __init__(self, mark: Path, deed: Callable[[], object], at: int = AT) -> None:
        self.mark, self.deed, self.at = mark, deed, at

    def __len__(self) -> int:
        return SAMPLES

    def __getitem__(self, index: int) -> int:
        if index == self.at and not self.mark.exists():
            # Whoever sees the file sees all of it.
            draft = self.mark.with_suffix(".draft")
            draft.write_text(str(time.monotonic()))
            draft.rename(self.mark)
            self.deed()
        time.sleep(SAMPLE_S)
        return index
