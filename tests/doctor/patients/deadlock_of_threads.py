"""Two locks, taken in one order by the loop and in the other by a thread that reports.

expects: deadlock-of-threads
"""

import threading
import time

from torch.utils.data import DataLoader

metrics, device = threading.Lock(), threading.Lock()


def report() -> None:
    with device:
        time.sleep(0.5)
        with metrics:
            pass


for _ in DataLoader(range(100), batch_size=4, num_workers=2):
    print("begins", flush=True)
    threading.Thread(target=report, daemon=True).start()
    with metrics:
        time.sleep(0.5)
        with device:
            pass
