"""The loop has a lock on a file, and workers of antifreeze's want it.

expects: file-lock
"""

import fcntl
import sys
from pathlib import Path

from torch.utils.data import Dataset

from antifreeze import DataLoader

path = Path(sys.argv[1]) / "index"


class Indexed(Dataset[int]):
    def __len__(self) -> int:
        return 100

    def __getitem__(self, index: int) -> int:
        with path.open("a") as file:
            fcntl.flock(file, fcntl.LOCK_EX)
            return index


if __name__ == "__main__":
    with path.open("a") as index:
        fcntl.flock(index, fcntl.LOCK_EX)
        print("begins", flush=True)
        for _ in DataLoader(Indexed(), batch_size=4, num_workers=2):
            pass
