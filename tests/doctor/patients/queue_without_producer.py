"""A stream out of a queue whose producer has died; the loop is in a thread.

expects: word-of-another-process
"""

import multiprocessing
import os
import threading
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
    for row in range(20):
        rows.put(row)
    rows.close()
    rows.join_thread()
    os._exit(1)


def train(rows: "Queue[int]") -> None:
    for _ in DataLoader(Stream(rows), batch_size=4, num_workers=3):
        pass


if __name__ == "__main__":
    rows: "Queue[int]" = multiprocessing.Queue()
    multiprocessing.Process(target=produce, args=(rows,)).start()
    print("begins", flush=True)
    training = threading.Thread(target=train, args=(rows,), name="training")
    training.start()
    training.join()
