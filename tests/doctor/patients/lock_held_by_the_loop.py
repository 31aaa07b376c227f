"""The loop has a lock while it starts the workers, which want it.

expects: lock-held-at-fork
"""

import threading

from torch.utils.data import DataLoader, Dataset

lock = threading.Lock()


class Guarded(Dataset[int]):
    def __len__(self) -> int:
        return 100

    def __getitem__(self, index: int) -> int:
        with lock:
            return index


def train() -> None:
    with lock:
        for _ in DataLoader(Guarded(), batch_size=4, num_workers=2):
            pass


print("begins", flush=True)
train()
