"""A thread of the script's own iterates over the loader; it has failed, and the loop waits for it.

expects: thread-gone
"""

import queue
import threading

import torch
from torch.utils.data import DataLoader, Dataset


class Rows(Dataset[int]):
    def __len__(self) -> int:
        return 1000

    def __getitem__(self, index: int) -> int:
        return index


def prefetch(loader: "DataLoader[int]", ready: "queue.Queue[object]") -> None:
    for number, batch in enumerate(loader):
        ready.put(torch.stack(batch) if number == 3 else batch)  # a tensor is no list of them


ready: "queue.Queue[object]" = queue.Queue(2)
loader = DataLoader(Rows(), batch_size=4, num_workers=2, persistent_workers=True)
threading.Thread(target=prefetch, args=(loader, ready), daemon=True).start()
print("begins", flush=True)
while ready.get() is not None:
    pass
