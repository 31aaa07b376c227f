"""Nothing: threads of a worker wait for a slow store, and the loop goes on.

expects: nothing
"""

import hashlib
import time
from concurrent.futures import ThreadPoolExecutor

from torch.utils.data import DataLoader, Dataset


def read(index: int) -> int:
    time.sleep(0.02)
    hashlib.sha256(b"x" * 100_000).digest()
    return index


class Store(Dataset[int]):
    pool: ThreadPoolExecutor | None = None

    def __len__(self) -> int:
        return 100_000

    def __getitem__(self, index: int) -> int:
        return index

    def __getitems__(self, indices: list[int]) -> list[int]:
        self.pool = self.pool or ThreadPoolExecutor(8)
        return list(self.pool.map(read, indices))


print("begins", flush=True)
give_up = time.monotonic() + 300
for _ in DataLoader(Store(), batch_size=16, num_workers=2):
    time.sleep(0.001)
    if time.monotonic() > give_up:
        break
