"""Workers wait for an event that the script sets after the first batch; that waits for them.

expects: word-of-another-process
"""

import multiprocessing
from multiprocessing.synchronize import Event

from torch.utils.data import DataLoader, Dataset


class Rows(Dataset[int]):
    def __init__(self, ready: Event) -> None:
        self.ready = ready

    def __len__(self) -> int:
        return 100

    def __getitem__(self, index: int) -> int:
        self.ready.wait()
        return index


ready = multiprocessing.Event()
batches = iter(DataLoader(Rows(ready), batch_size=4, num_workers=2))
print("begins", flush=True)
next(batches)
ready.set()
