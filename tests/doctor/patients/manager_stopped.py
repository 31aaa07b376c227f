"""A manager is stopped; the workers wait for it, and have not come to their own code yet.

expects: worker-stopped
"""

import multiprocessing
import os
import signal
from multiprocessing.managers import DictProxy

from torch.utils.data import DataLoader, Dataset


class Looked(Dataset[int]):
    def __init__(self, table: "DictProxy[int, int]") -> None:
        self.table = table

    def __len__(self) -> int:
        return 100

    def __getitem__(self, index: int) -> int:
        return self.table.get(index, 0)


if __name__ == "__main__":
    with multiprocessing.Manager() as manager:
        table = manager.dict()
        (server,) = multiprocessing.active_children()
        os.kill(server.pid or 0, signal.SIGSTOP)
        batches = iter(DataLoader(Looked(table), batch_size=4, num_workers=2))
        print("begins", flush=True)
        list(batches)
