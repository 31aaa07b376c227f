"""A thread of the main process computes in Python all the time; the loop crawls.

expects: gil-bound
"""

import threading
import time

from torch.utils.data import DataLoader


def statistics() -> None:
    total = 0
    while True:
        total += 1


threading.Thread(target=statistics, name="statistics", daemon=True).start()
print("begins", flush=True)
give_up = time.monotonic() + 300
while time.monotonic() < give_up:
    for _ in DataLoader(range(100_000), batch_size=4, num_workers=2):
        pass
