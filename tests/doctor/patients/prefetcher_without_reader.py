"""The main thread joins a prefetcher, which waits for room: whoever took batches has failed.

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


def train(batches: "queue.Queue[object]") -> None:
    batches.get()
    raise ValueError("a step failed")


batches: "queue.Queue[object]" = queue.Queue(2)
threads = [
    threading.Thread(target=prefetch, args=(batches,), name="prefetch"),
    threading.Thread(target=train, args=(batches,), name="training"),
]
for each in threads:
    each.start()
print("begins", flush=True)
for each in reversed(threads):
    each.join()
