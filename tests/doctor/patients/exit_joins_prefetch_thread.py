"""The program is over, but for a thread that waits for room in a queue that nobody empties.

expects: exit-joins-stuck-worker
"""

import queue
import threading

from torch.utils.data import DataLoader, Dataset


class Rows(Dataset[int]):
    def __len__(self) -> int:
        return 1000

    def __getitem__(self, index: int) -> int:
        return index


def prefetch(into: "queue.Queue[object]") -> None:
    for batch in DataLoader(Rows(), batch_size=2, num_workers=2):
        into.put(batch)


batches: "queue.Queue[object]" = queue.Queue(2)
threading.Thread(target=prefetch, args=(batches,), name="prefetch").start()
print(batches.get(), "begins", flush=True)
