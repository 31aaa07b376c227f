"""Two threads of a worker take two locks in different orders, and the worker waits for them.

expects: deadlock-of-threads
"""

import threading
import time
from concurrent.futures import ThreadPoolExecutor

from torch.utils.data import DataLoader, Dataset


class Crossed(Dataset[int]):
    def __len__(self) -> int:
        return 100

    def __getitem__(self, index: int) -> int:
        one, two = threading.RLock(), threading.RLock()

        def read(first: threading.RLock, second: threading.RLock) -> int:
            with first:
                time.sleep(0.3)
                with second:
                    return index

        with ThreadPoolExecutor(2) as pool:
            both = [pool.submit(read, one, two), pool.submit(read, two, one)]
            return sum(each.result() for each in both)


print("begins", flush=True)
for _ in DataLoader(Crossed(), batch_size=4, num_workers=2):
    pass
