"""A worker was killed while it held a lock of multiprocessing; the script tries once more.

expects: lock-of-the-dead
"""

import multiprocessing
import os
import signal

from torch.utils.data import DataLoader, Dataset

lock = multiprocessing.Lock()


class Cached(Dataset[int]):
    def __len__(self) -> int:
        return 100

    def __getitem__(self, index: int) -> int:
        with lock:
            if index == 8:
                os.kill(os.getpid(), signal.SIGKILL)
            return index


loader = DataLoader(Cached(), batch_size=4, num_workers=2)
try:
    list(loader)
except RuntimeError as error:
    print(error)
print("begins", flush=True)
list(loader)
