"""Nothing: a stream out of a queue, and its producer takes seconds for each row.

expects: nothing; says: slow-samples
"""

import multiprocessing
import time
from collections.abc import Iterator
from multiprocessing.queues import Queue

from torch.utils.data import DataLoader, IterableDataset


class Stream(IterableDataset[int]):
    def __init__(self, rows: "Queue[int]") -> None:
        self.rows = rows

    def __iter__(self) -> Iterator[int]:
        while True:
            yield self.rows.get()


def produce(rows: "Queue[int]") -> None:
    while True:
        time.sleep(3)
        rows.put(1)


if __name__ == "__main__":
    rows: "Queue[int]" = multiprocessing.Queue()
    multiprocessing.Process(target=produce, args=(rows,), daemon=True).start()
    print("begins", flush=True)
    for _ in DataLoader(Stream(rows), batch_size=4, num_workers=2):
        pass
