"""A thread that prefetches batches has failed, and the loop waits at its queue.

expects: thread-gone
"""

import queue
import threading

from torch.utils.data import DataLoader, Dataset


class Rows(Dataset[int]):
    def __len__(self) -> int:
        return 1000

    def __getitem__(self, index: int) -> int:
        return index


def prefetch(loader: "DataLoader[int]", into: "queue.Queue[object]") -> None:
    for number, batch in enumerate(loader):
        if number == 20:
            raise ValueError("no room")
        into.put(batch)


loader = DataLoader(Rows(), batch_size=4, num_workers=2, persistent_workers=True)
batches: "queue.Queue[object]" = queue.Queue(4)
threading.Thread(target=prefetch, args=(loader, batches), daemon=True).start()
print("begins", flush=True)
while batches.get() is not None:
    pass
