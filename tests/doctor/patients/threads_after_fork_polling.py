"""A worker that looks again and again whether a thread of the main process has answered.

expects: threads-after-fork
"""

import queue
import threading

from torch.utils.data import DataLoader, Dataset

wishes: queue.Queue[tuple[int, threading.Event]] = queue.Queue()


def answer() -> None:
    while True:
        _, done = wishes.get()
        done.set()


threading.Thread(target=answer, daemon=True).start()


class Asked(Dataset[int]):
    def __len__(self) -> int:
        return 100

    def __getitem__(self, index: int) -> int:
        done = threading.Event()
        wishes.put((index, done))
        while not done.wait(1):
            pass
        return index


print("begins", flush=True)
for _ in DataLoader(Asked(), batch_size=4, num_workers=2):
    pass
