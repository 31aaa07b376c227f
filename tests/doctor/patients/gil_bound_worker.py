"""Threads of a worker compute in Python: they take turns.

expects: gil-bound
"""

import time
from concurrent.futures import ThreadPoolExecutor

from torch.utils.data import DataLoader, Dataset


def transform(index: int) -> int:
    total = 0
    for number in range(30_000_000):
        total += number
    return total


class Threaded(Dataset[int]):
    def __len__(self) -> int:
        return 1000

    def __getitem__(self, index: int) -> int:
        return index

    def __getitems__(self, indices: list[int]) -> list[int]:
        with ThreadPoolExecutor(6) as pool:
            return list(pool.map(transform, indices))


print("begins", flush=True)
give_up = time.monotonic() + 300
for _ in DataLoader(Threaded(), batch_size=6, num_workers=1):
    if time.monotonic() > give_up:
        break
