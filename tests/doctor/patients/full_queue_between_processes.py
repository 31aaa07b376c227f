"""Workers report into a queue that the script empties after the epoch; it has room for eight.

expects: word-of-another-process
"""

import multiprocessing
from multiprocessing.queues import Queue

from torch.utils.data import DataLoader, Dataset


class Reported(Dataset[int]):
    def __init__(self, reports: "Queue[int]") -> None:
        self.reports = reports

    def __len__(self) -> int:
        return 100

    def __getitem__(self, index: int) -> int:
        self.reports.put(index)
        return index


reports: "Queue[int]" = multiprocessing.Queue(8)
batches = iter(DataLoader(Reported(reports), batch_size=4, num_workers=2))
print("begins", flush=True)
list(batches)
while not reports.empty():
    reports.get()
