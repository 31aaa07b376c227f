"""Nothing is stuck: two workers take turns at a lock on a file, four seconds each.

expects: nothing; says: lock-in-turns
"""

import fcntl
import sys
import time
from pathlib import Path

from torch.utils.data import DataLoader, Dataset

path = Path(sys.argv[1]) / "cache.lock"


class Cached(Dataset[int]):
    def __len__(self) -> int:
        return 1000

    def __getitem__(self, index: int) -> int:
        with path.open("w") as file:
            fcntl.flock(file, fcntl.LOCK_EX)
            time.sleep(4)
        return index


print("begins", flush=True)
for _ in DataLoader(Cached(), batch_size=1, num_workers=2):
    pass
