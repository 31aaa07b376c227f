"""A worker tries again and again, and its pauses double.

expects: sleeping-sample
"""

import time

from torch.utils.data import DataLoader, Dataset


class Fetched(Dataset[int]):
    def __len__(self) -> int:
        return 100

    def __getitem__(self, index: int) -> int:
        pause_s = 0.1
        while index == 5:
            time.sleep(pause_s)
            pause_s *= 50_000
        return index


batches = iter(DataLoader(Fetched(), batch_size=4, num_workers=2))
print("begins", flush=True)
list(batches)
