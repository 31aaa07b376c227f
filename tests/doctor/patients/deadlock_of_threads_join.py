"""The loop waits for a thread to end, and holds the lock that the thread wants.

expects: deadlock-of-threads
"""

import threading

from torch.utils.data import DataLoader

lock = threading.RLock()


def save() -> None:
    with lock:
        pass


for _ in DataLoader(range(100), batch_size=4, num_workers=2):
    print("begins", flush=True)
    saver = threading.Thread(target=save, name="checkpoint")
    with lock:
        saver.start()
        saver.join()
