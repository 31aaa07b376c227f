"""Two causes at once: a worker that was stopped, and a lock held at fork in the other.

expects: worker-stopped, lock-held-at-fork
"""

import os
import signal
import threading
import time

from torch.utils.data import DataLoader, Dataset, get_worker_info

lock = threading.Lock()


class Both(Dataset[int]):
    def __len__(self) -> int:
        return 100

    def __getitem__(self, index: int) -> int:
        info = get_worker_info()
        assert info is not None
        if info.id == 1:
            os.kill(os.getpid(), signal.SIGSTOP)
        with lock:
            return index


def upload() -> None:
    with lock:
        time.sleep(290)


threading.Thread(target=upload, daemon=True).start()
time.sleep(0.2)
print("begins", flush=True)
for _ in DataLoader(Both(), batch_size=2, num_workers=2):
    pass
