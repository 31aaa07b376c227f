"""Nothing: workers decode, and the loop trains.

expects: nothing
"""

import hashlib
import time

from torch.utils.data import DataLoader, Dataset


class Decoded(Dataset[int]):
    def __len__(self) -> int:
        return 100_000_000

    def __getitem__(self, index: int) -> int:
        data = b"x" * 1000
        for _ in range(500):
            data = hashlib.sha256(data).digest()
        return index


print("begins", flush=True)
give_up = time.monotonic() + 300
for _ in DataLoader(Decoded(), batch_size=8, num_workers=2):
    time.sleep(0.002)
    if time.monotonic() > give_up:
        break
