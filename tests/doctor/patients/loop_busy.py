"""Nothing: the loop computes for a long time, and the workers have their batches ready.

expects: nothing; says: loop-busy
"""

import time

from torch.utils.data import DataLoader, Dataset


class Quick(Dataset[int]):
    def __len__(self) -> int:
        return 100_000

    def __getitem__(self, index: int) -> int:
        return index


def train(batch: object, until: float) -> int:
    steps = 0
    while time.monotonic() < until:
        steps += sum(range(1000))
    return steps


give_up = time.monotonic() + 300
print("begins", flush=True)
for batch in DataLoader(Quick(), batch_size=8, num_workers=2):
    train(batch, give_up)
    if time.monotonic() > give_up:
        break
