"""Two loaders: a worker of the first waits for a lock, one of the second for a named pipe.

expects: lock-held-at-fork, pipe-without-writer
"""

import os
import sys
import threading
import time
from pathlib import Path

from torch.utils.data import DataLoader, Dataset

pipe = Path(sys.argv[1]) / "captions"
lock = threading.Lock()


class Photos(Dataset[int]):
    def __len__(self) -> int:
        return 100

    def __getitem__(self, index: int) -> int:
        with lock:
            return index


class Captions(Dataset[int]):
    def __len__(self) -> int:
        return 100

    def __getitem__(self, index: int) -> int:
        return len(pipe.read_bytes())


def upload() -> None:
    with lock:
        time.sleep(600)


os.mkfifo(pipe)
threading.Thread(target=upload, daemon=True).start()
time.sleep(0.2)
photos = iter(DataLoader(Photos(), batch_size=4, num_workers=2))
captions = iter(DataLoader(Captions(), batch_size=4, num_workers=2))
print("begins", flush=True)
for _ in zip(photos, captions, strict=True):
    pass
