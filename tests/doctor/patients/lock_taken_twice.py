"""A forked worker takes a plain lock twice: the source says so.

expects: deadlock-of-threads
"""

import threading

from torch.utils.data import DataLoader, Dataset

LOCK = threading.Lock()


class Twice(Dataset[int]):
    def __len__(self) -> int:
        return 100

    def __getitem__(self, index: int) -> int:
        with LOCK:
            return self.load(index)

    def load(self, index: int) -> int:
        with LOCK:
            return index


batches = iter(DataLoader(Twice(), batch_size=4, num_workers=2))
print("begins", flush=True)
list(batches)
