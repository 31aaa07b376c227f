"""A re-entrant lock that a thread of the main process holds while the workers are forked.

expects: lock-held-at-fork
"""

import threading
import time

from torch.utils.data import DataLoader, Dataset

lock = threading.RLock()


class Guarded(Dataset[int]):
    def __len__(self) -> int:
        return 100

    def __getitem__(self, index: int) -> int:
        with lock:
            return index


def upload() -> None:
    with lock:
        time.sleep(600)


threading.Thread(target=upload, daemon=True).start()
time.sleep(0.2)
print("begins", flush=True)
for _ in DataLoader(Guarded(), batch_size=4, num_workers=2):
    pass
