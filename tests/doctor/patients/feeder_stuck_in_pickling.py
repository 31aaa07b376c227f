"""What a batch is made of waits for a lock while it is pickled, in the thread that sends.

expects: feeder-stuck
"""

import threading

from torch.utils.data import DataLoader, Dataset


class Handle:
    def __init__(self, index: int) -> None:
        self.index = index
        self.lock = threading.Lock()

    def __reduce__(self) -> tuple[type, tuple[int]]:
        with self.lock:
            return self.closed()

    def closed(self) -> tuple[type, tuple[int]]:
        with self.lock:
            return Handle, (self.index,)


class Handles(Dataset[Handle]):
    def __len__(self) -> int:
        return 100

    def __getitem__(self, index: int) -> Handle:
        return Handle(index)


batches = iter(DataLoader(Handles(), batch_size=4, num_workers=2, collate_fn=list))
print("begins", flush=True)
list(batches)
