"""Nothing: a sample takes a minute, in several steps that each take some seconds.

expects: nothing; says: slow-samples
"""

import hashlib
import time

from torch.utils.data import DataLoader, Dataset


def decode(seconds: float) -> int:
    enough = time.monotonic() + seconds
    count = 0
    while time.monotonic() < enough:
        count += len(hashlib.sha256(b"x" * 1000).digest())
    return count


def resize(seconds: float) -> int:
    enough = time.monotonic() + seconds
    count = 0
    while time.monotonic() < enough:
        count += sum(range(1000))
    return count


class Video(Dataset[int]):
    def __len__(self) -> int:
        return 100

    def __getitem__(self, index: int) -> int:
        return sum(decode(3.0) + resize(2.0) for _ in range(12))


print("begins", flush=True)
for _ in DataLoader(Video(), batch_size=1, num_workers=2):
    pass
