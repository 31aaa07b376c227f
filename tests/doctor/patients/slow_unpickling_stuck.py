"""A spawned worker waits in the dataset's `__setstate__`; the main process waits to send the rest.

expects: slow-unpickling
"""

import time

from torch.utils.data import DataLoader, Dataset


class Head:
    def __init__(self) -> None:
        self.version = 1

    def __setstate__(self, state: dict[str, int]) -> None:
        time.sleep(600)


class Rows(Dataset[int]):
    def __init__(self) -> None:
        self.head = Head()  # unpickled first, while most of the rows are still in the pipe
        self.rows = [bytes([number % 256]) * 1000 for number in range(2000)]

    def __len__(self) -> int:
        return 100

    def __getitem__(self, index: int) -> int:
        return index


if __name__ == "__main__":
    print("begins", flush=True)
    for _ in DataLoader(Rows(), num_workers=2, multiprocessing_context="spawn"):
        pass
