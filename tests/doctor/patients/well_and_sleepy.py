"""Nothing: each sample sleeps for a tenth of a second, and batches come.

expects: nothing; says: slow-samples
"""

import time

from torch.utils.data import DataLoader, Dataset


class Sleepy(Dataset[int]):
    def __len__(self) -> int:
        return 100_000

    def __getitem__(self, index: int) -> int:
        time.sleep(0.1)
        return index


print("begins", flush=True)
give_up = time.monotonic() + 300
for _ in DataLoader(Sleepy(), batch_size=8, num_workers=2):
    if time.monotonic() > give_up:
        break
