"""The loop has a mutex of C in a file that its workers have mapped too, and they want it.

expects: file-lock
"""

import ctypes
import mmap
import sys
from pathlib import Path

from torch.utils.data import DataLoader, Dataset

SHARED, ROBUST = 1, 1  # PTHREAD_PROCESS_SHARED, PTHREAD_MUTEX_ROBUST
SIZE = 4096

C = ctypes.CDLL(None)
path = Path(sys.argv[1]) / "store.lock"
path.write_bytes(bytes(SIZE))
file = path.open("r+b")
memory = mmap.mmap(file.fileno(), SIZE)
mutex = ctypes.byref(ctypes.c_char.from_buffer(memory))


class Written(Dataset[int]):
    def __len__(self) -> int:
        return 100

    def __getitem__(self, index: int) -> int:
        C.pthread_mutex_lock(mutex)
        C.pthread_mutex_unlock(mutex)
        return index


kind = ctypes.create_string_buffer(64)
C.pthread_mutexattr_init(kind)
C.pthread_mutexattr_setpshared(kind, SHARED)
C.pthread_mutexattr_setrobust(kind, ROBUST)
C.pthread_mutex_init(mutex, kind)
C.pthread_mutex_lock(mutex)
print("begins", flush=True)
for _ in DataLoader(Written(), batch_size=4, num_workers=2):
    pass
