"""Nothing is stuck: one lock around a slow read lets three workers load one after the other.

expects: nothing; says: lock-in-turns
"""

import multiprocessing
import time

from torch.utils.data import DataLoader, Dataset

lock = multiprocessing.Lock()


class Guarded(Dataset[int]):
    def __len__(self) -> int:
        return 1000

    def __getitem__(self, index: int) -> int:
        with lock:
            time.sleep(3)
        return index


print("begins", flush=True)
for _ in DataLoader(Guarded(), batch_size=2, num_workers=3):
    pass
