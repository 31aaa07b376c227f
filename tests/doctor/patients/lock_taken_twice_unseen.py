"""A forked worker takes a plain lock twice, and no source says so; the loop is in a thread.

expects: deadlock-of-threads, lock-held-at-fork
"""

import threading

from torch.utils.data import DataLoader, Dataset


class Store:
    def __init__(self) -> None:
        self.guard = threading.Lock()
        self.known: dict[int, int] = {}

    def load(self, index: int) -> int:
        with self.guard:
            return self.known.setdefault(index, index)


class Rows(Dataset[int]):
    def __init__(self) -> None:
        self.store = Store()

    def __len__(self) -> int:
        return 100

    def __getitem__(self, index: int) -> int:
        with self.store.guard:
            return self.store.load(index)


def train() -> None:
    for _ in DataLoader(Rows(), batch_size=4, num_workers=2):
        pass


training = threading.Thread(target=train, name="training")
print("begins", flush=True)
training.start()
training.join()
