"""Two epochs beside a library that the program has used; print what happened as one line of JSON.

Each program here is run as `program.py CASE`; `LOADER=torch` runs it with torch's own loader.
"""

from __future__ import annotations

import json
import os
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch

if os.environ.get("LOADER") == "torch":
    from torch.utils.data import DataLoader
else:
    from antifreeze import DataLoader

SAMPLES, LATE = 64, 40  # from the second on the library is used, in some cases
IDLE_S = 0.5  # for the pool: rayon's threads spin for a while, and what runs is a hazard
CASE = sys.argv[1]


class Job:
    """A dataset whose samples are numbers."""

    def __len__(self) -> int:
        return SAMPLES


class Unused(Job):
    def __getitem__(self, index: int) -> int:
        return index * 3


def run(use: Callable[[int], int], cases: dict[str, Callable[[], Any]]) -> None:
    """Use the library here, unless it is only imported, and load in workers."""
    if CASE != "imported":
        use(3)
        time.sleep(IDLE_S)
    dataset = {"unused": Unused, **cases}[CASE]()
    loader: Any = DataLoader(dataset, 4, num_workers=2, persistent_workers=CASE == "persistent")
    epochs, first_s, whole_s = [], [], []
    for _ in range(2):
        began, got = time.monotonic(), []
        for batch in loader:
            if not got:
                first_s.append(round(time.monotonic() - began, 2))
            got += batch.tolist()
        whole_s.append(round(time.monotonic() - began, 2))
        epochs.append(got)
    told: dict[str, Any] = {"epochs": epochs, "first_s": first_s, "whole_s": whole_s}
    if hasattr(loader, "faults"):
        told["faults"] = [fault.exception for fault in loader.faults]
        told["from"] = loader._lineage().choice.descent.value
    told["expected"] = torch.cat(list(DataLoader(dataset, 4))).tolist()
    threads = [path.read_text().strip() for path in Path("/proc/self/task").glob("*/comm")]
    told["threads"] = sorted(set(threads))
    print(json.dumps(told), flush=True)
