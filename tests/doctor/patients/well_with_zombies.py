"""Nothing: it trains, some children of its own have ended, and so have two workers of an iterable
dataset whose share is small.

expects: nothing; says: slow-samples
"""

import subprocess
import time
from collections.abc import Iterator

from torch.utils.data import DataLoader, IterableDataset, get_worker_info


class Shares(IterableDataset[int]):
    def __iter__(self) -> Iterator[int]:
        info = get_worker_info()
        assert info is not None
        for number in range(2 if info.id else 30_000):
            time.sleep(0.01)
            yield number


children = [subprocess.Popen(["true"]) for _ in range(3)]
print("begins", flush=True)
for _ in DataLoader(Shares(), batch_size=4, num_workers=3):
    time.sleep(0.001)
