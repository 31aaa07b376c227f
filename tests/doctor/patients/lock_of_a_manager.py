"""A lock of a manager, whose holder has died: the manager does not notice.

expects: word-of-another-process
"""

import multiprocessing
import os
from contextlib import AbstractContextManager

from torch.utils.data import DataLoader, Dataset


class Guarded(Dataset[int]):
    def __init__(self, lock: AbstractContextManager[bool]) -> None:
        self.lock = lock

    def __len__(self) -> int:
        return 100

    def __getitem__(self, index: int) -> int:
        with self.lock:
            return index


def take(lock: AbstractContextManager[bool]) -> None:
    lock.__enter__()
    os._exit(1)


if __name__ == "__main__":
    manager = multiprocessing.Manager()
    lock = manager.Lock()
    thief = multiprocessing.Process(target=take, args=(lock,))
    thief.start()
    thief.join()
    batches = iter(DataLoader(Guarded(lock), batch_size=4, num_workers=2))
    print("begins", flush=True)
    list(batches)
