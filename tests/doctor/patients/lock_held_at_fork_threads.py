"""Threads of a worker want a lock that a thread of the main process held at the fork.

expects: lock-held-at-fork
"""

import threading
import time
from concurrent.futures import ThreadPoolExecutor

from torch.utils.data import DataLoader, Dataset

lock = threading.Lock()


def read(index: int) -> int:
    with lock:
        return index


class Parallel(Dataset[int]):
    def __len__(self) -> int:
        return 100

    def __getitems__(self, indices: list[int]) -> list[int]:
        with ThreadPoolExecutor(4) as pool:
            return list(pool.map(read, indices))

    def __getitem__(self, index: int) -> int:
        return read(index)


def report() -> None:
    with lock:
        time.sleep(600)


threading.Thread(target=report, daemon=True).start()
time.sleep(0.2)
print("begins", flush=True)
for _ in DataLoader(Parallel(), batch_size=4, num_workers=2, persistent_workers=True):
    pass
