"""Nothing: every sample computes for a third of a second, and the loop waits most of the time.

expects: nothing; says: slow-samples
"""

import hashlib
import time

from torch.utils.data import DataLoader, Dataset


class Slow(Dataset[int]):
    def __len__(self) -> int:
        return 100_000

    def __getitem__(self, index: int) -> int:
        data = b"x" * 1000
        enough = time.thread_time() + 0.3
        while time.thread_time() < enough:
            data = hashlib.sha256(data).digest()
        return index


give_up = time.monotonic() + 300
for step, _ in enumerate(DataLoader(Slow(), batch_size=8, num_workers=2)):
    if step == 2:
        print("begins", flush=True)
    if time.monotonic() > give_up:
        break
