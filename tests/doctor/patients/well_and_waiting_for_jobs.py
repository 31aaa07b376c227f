"""Nothing: the program waits until somebody puts a job into its queue.

expects: nothing; says: loop-busy
"""

import queue
import threading
import time

from torch.utils.data import DataLoader

jobs: queue.Queue[int] = queue.Queue()


def look_for_jobs() -> None:
    while True:
        time.sleep(30.0)


threading.Thread(target=look_for_jobs, daemon=True).start()
print("begins", flush=True)
for _ in DataLoader(range(jobs.get()), num_workers=2):
    pass
