"""Nothing is dead: one worker holds a lock of multiprocessing for long, and works.

expects: nothing; says: lock-in-turns
"""

import multiprocessing
import time

from torch.utils.data import DataLoader, Dataset

lock = multiprocessing.Lock()


class Slow(Dataset[int]):
    def __len__(self) -> int:
        return 1000

    def __getitem__(self, index: int) -> int:
        with lock:
            until = time.monotonic() + 2
            while time.monotonic() < until:
                pass
            return index


print("begins", flush=True)
give_up = time.monotonic() + 300
for _ in DataLoader(Slow(), batch_size=4, num_workers=2):
    if time.monotonic() > give_up:
        break
