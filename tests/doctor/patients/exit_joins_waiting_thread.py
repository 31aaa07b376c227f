"""The program is over, but for a thread of a pool that waits for more to upload.

expects: exit-joins-stuck-worker
"""

import queue
from concurrent.futures import ThreadPoolExecutor

from torch.utils.data import DataLoader, Dataset


class Rows(Dataset[int]):
    def __len__(self) -> int:
        return 20

    def __getitem__(self, index: int) -> int:
        return index


def upload(results: "queue.Queue[object]") -> None:
    while True:
        results.get()


results: "queue.Queue[object]" = queue.Queue()
ThreadPoolExecutor(1).submit(upload, results)
for batch in DataLoader(Rows(), batch_size=4, num_workers=2):
    results.put(batch)
print("begins", flush=True)
