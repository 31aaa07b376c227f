"""Nothing: three workers are spawned and import for long; another process has done its part.

expects: nothing
"""

import multiprocessing
import time

from torch.utils.data import DataLoader, Dataset


class Rows(Dataset[int]):
    def __len__(self) -> int:
        return 100_000

    def __getitem__(self, index: int) -> int:
        return index


def prepare() -> None:
    pass


if __name__ == "__main__":
    preparing = multiprocessing.Process(target=prepare)
    preparing.start()
    preparing.join()
    print("begins", flush=True)
    for _ in DataLoader(Rows(), num_workers=3, multiprocessing_context="spawn"):
        time.sleep(0.05)
else:
    time.sleep(8)  # in a worker: what it imports
