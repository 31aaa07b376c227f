"""Nothing: a spawned worker computes while it unpickles its dataset, which does not fit the pipe.

expects: nothing; says: slow-unpickling
"""

import time

from torch.utils.data import DataLoader, Dataset


class Head:
    def __init__(self) -> None:
        self.version = 1

    def __setstate__(self, state: dict[str, int]) -> None:
        enough = time.monotonic() + 300
        while time.monotonic() < enough:
            sum(range(1000))


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
