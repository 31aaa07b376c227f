"""The thread that pins memory does not come back from a batch's own `pin_memory`. (torch starts the
thread only where there is an accelerator; here it is told that there is one.)

expects: pin-memory-thread-stuck
"""

import threading

import torch
from torch.utils.data import DataLoader, Dataset

torch.accelerator.is_available = lambda: True
torch.accelerator.current_device_index = lambda: 0
torch.accelerator.set_device_index = lambda _: None
lock = threading.Lock()


class Batch:
    def __init__(self, rows: list[int]) -> None:
        self.rows = rows

    def pin_memory(self) -> "Batch":
        if 6 in self.rows:
            with lock, lock:
                pass
        return self


class Rows(Dataset[int]):
    def __len__(self) -> int:
        return 100

    def __getitem__(self, index: int) -> int:
        return index


print("begins", flush=True)
for _ in DataLoader(Rows(), batch_size=2, num_workers=2, collate_fn=Batch, pin_memory=True):
    pass
