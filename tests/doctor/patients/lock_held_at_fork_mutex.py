"""A lock of C code that a thread of the main process holds while the workers are forked.

expects: lock-held-at-fork
"""

import ctypes
import threading
import time
from collections.abc import Iterator

from torch.utils.data import DataLoader, IterableDataset

library = ctypes.CDLL(None)
mutex = ctypes.create_string_buffer(64)  # a pthread_mutex_t, as C++'s std::mutex is


class Native(IterableDataset[int]):
    def __iter__(self) -> Iterator[int]:
        for index in range(100):
            library.pthread_mutex_lock(mutex)
            library.pthread_mutex_unlock(mutex)
            yield index


def upload() -> None:
    library.pthread_mutex_lock(mutex)
    time.sleep(600)


threading.Thread(target=upload, daemon=True).start()
time.sleep(0.2)
print("begins", flush=True)
for _ in DataLoader(Native(), batch_size=4, num_workers=2, pin_memory=True):
    pass
