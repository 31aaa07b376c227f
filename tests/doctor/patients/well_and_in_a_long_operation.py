"""Nothing: each sample is one operation of a native library that takes fifteen seconds.

expects: nothing; says: slow-samples
"""

import time

import torch
from torch.utils.data import DataLoader, Dataset

torch.set_num_threads(1)


class Large(Dataset[int]):
    def __len__(self) -> int:
        return 100

    def __getitem__(self, index: int) -> int:
        if index < 2:
            return index
        began = time.perf_counter()
        torch.sort(torch.rand(2_000_000))
        times = round(15 / (time.perf_counter() - began))
        return int(torch.sort(torch.rand(times, 2_000_000)).indices[0, 0])


print("begins", flush=True)
for _ in DataLoader(Large(), batch_size=2, num_workers=1):
    pass
