"""A helper was killed while it wrote to a queue; workers (spawned) that write to it wait.

expects: lock-of-the-dead
"""

import multiprocessing
import os
import signal
import time
from multiprocessing.queues import SimpleQueue

import torch.multiprocessing
from torch.utils.data import DataLoader, Dataset


class Told(Dataset[int]):
    def __init__(self, notes: "SimpleQueue[int]") -> None:
        self.notes = notes

    def __len__(self) -> int:
        return 100

    def __getitem__(self, index: int) -> int:
        self.notes.put(index)
        return index


def fill(notes: "SimpleQueue[int]") -> None:
    while True:
        notes.put(0)


def main() -> None:
    context = torch.multiprocessing.get_context("spawn")
    notes: SimpleQueue[int] = multiprocessing.get_context("spawn").SimpleQueue()
    helper = multiprocessing.get_context("fork").Process(target=fill, args=(notes,), daemon=True)
    helper.start()
    time.sleep(1)  # the pipe is full: it waits in the middle of writing, with the lock
    os.kill(helper.pid or 0, signal.SIGKILL)
    helper.join()
    loader = DataLoader(Told(notes), num_workers=2, multiprocessing_context=context)
    batches = iter(loader)
    print("begins", flush=True)
    list(batches)


if __name__ == "__main__":
    main()
