"""The program is over, and its worker does not end: it is in a sample that takes for ever, and
handles SIGTERM as the main process does, to save when the scheduler says so.

expects: exit-joins-stuck-worker
"""

import signal
import threading
import time

from torch.utils.data import DataLoader, Dataset

never = threading.Event()


class Endless(Dataset[int]):
    def __len__(self) -> int:
        return 100

    def __getitem__(self, index: int) -> int:
        if index >= 4:
            never.wait(300)
        return index


def save_on_term(worker: int = 0) -> None:
    signal.signal(signal.SIGTERM, lambda number, frame: None)


save_on_term()
loader = DataLoader(Endless(), batch_size=2, num_workers=2, worker_init_fn=save_on_term)
batches = iter(loader)
next(batches)
time.sleep(0.5)
print("begins", flush=True)
