"""A sample looks at a flag that nobody sets, a thousand times a second.

expects: sleeping-sample
"""

import time

from torch.utils.data import DataLoader, Dataset

ready: list[int] = []


class Flagged(Dataset[int]):
    def __len__(self) -> int:
        return 100

    def __getitem__(self, index: int) -> int:
        while index == 50 and not ready:
            time.sleep(0.001)
        return index


print("begins", flush=True)
for _ in DataLoader(Flagged(), batch_size=4, num_workers=2):
    pass
