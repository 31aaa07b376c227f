"""A worker hands what it reads to a thread of its own, which has failed: its queue is full.

expects: threads-after-fork
"""

import queue
import threading

from torch.utils.data import DataLoader, Dataset


class Kept(Dataset[int]):
    results: "queue.Queue[int] | None" = None

    def __len__(self) -> int:
        return 1000

    def keep(self, results: "queue.Queue[int]") -> None:
        while True:
            1 // (results.get() - 5)

    def __getitem__(self, index: int) -> int:
        if self.results is None:
            self.results = queue.Queue(4)
            threading.Thread(target=self.keep, args=(self.results,), daemon=True).start()
        self.results.put(5)
        return index


print("begins", flush=True)
for _ in DataLoader(Kept(), batch_size=4, num_workers=2):
    pass
