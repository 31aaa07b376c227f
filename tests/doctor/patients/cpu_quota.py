"""Four workers that compute, in a group of processes that may use a fifth of a core.

expects: cpu-quota
"""

import contextlib
import hashlib
import os
import time
from pathlib import Path

from torch.utils.data import DataLoader, Dataset

GROUPS = Path("/sys/fs/cgroup/cpu")


def enter() -> bool:
    """Go into a group of our own, below whichever we are in; those of earlier ones are removed."""
    for old in GROUPS.glob("antifreeze_patient_*"):
        with contextlib.suppress(OSError):
            old.rmdir()
    mine = GROUPS / f"antifreeze_patient_{os.getpid()}"
    try:
        mine.mkdir()
        (mine / "cpu.cfs_quota_us").write_text("20000")
        (mine / "cgroup.procs").write_text(str(os.getpid()))
    except OSError as error:
        print("cannot:", error, flush=True)
        return False
    return True


class Decoded(Dataset[int]):
    def __len__(self) -> int:
        return 100_000

    def __getitem__(self, index: int) -> int:
        data = b"x" * 1000
        for _ in range(500):
            data = hashlib.sha256(data).digest()
        return index


if enter():
    print("begins", flush=True)
    give_up = time.monotonic() + 300
    for _ in DataLoader(Decoded(), batch_size=8, num_workers=4):
        if time.monotonic() > give_up:
            break
