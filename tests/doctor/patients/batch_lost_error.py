"""An error that cannot be pickled, in persistent workers in a second epoch: the error is lost.

expects: batch-lost
"""

import os

from torch.utils.data import DataLoader, Dataset


class Broken(Dataset[int]):
    def __init__(self) -> None:
        self.read = 0

    def __len__(self) -> int:
        return 16

    def __getitem__(self, index: int) -> int:
        class BadRow(Exception):
            pass

        self.read += 1
        if index == 3 and self.read > 6:
            raise BadRow(f"row {index} in {os.getpid()}")
        return index


def train(loader: DataLoader[int]) -> None:
    for _ in loader:
        pass


loader = DataLoader(Broken(), batch_size=2, num_workers=3, persistent_workers=True)
print("begins", flush=True)
for _ in range(100):
    train(loader)
