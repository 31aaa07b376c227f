"""A library looks again and again for a lock file that another worker has locked and keeps.

expects: file-lock
"""

import sys
import time
from pathlib import Path

from filelock import FileLock
from torch.utils.data import DataLoader, Dataset, get_worker_info

path = Path(sys.argv[1]) / "data.lock"


class Downloaded(Dataset[int]):
    def __len__(self) -> int:
        return 100

    def __getitem__(self, index: int) -> int:
        worker = get_worker_info()
        if worker is not None and worker.id == 1:
            time.sleep(1)
        with FileLock(path):
            time.sleep(300)
        return index


print("begins", flush=True)
for _ in DataLoader(Downloaded(), batch_size=4, num_workers=2):
    pass
