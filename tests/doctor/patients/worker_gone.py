"""A worker is killed in the middle of a large batch that it sends; the loop runs in a thread, as
prefetchers do, so that no signal tells of it.

expects: worker-gone
"""

import os
import queue
import signal
import threading
import time

from torch.utils.data import DataLoader, Dataset

LARGE = 64 << 20


class Large(Dataset[bytes]):
    def __len__(self) -> int:
        return 100

    def __getitem__(self, index: int) -> bytes:
        if index == 4:
            threading.Thread(target=die_while_sending, daemon=True).start()
        return bytes(LARGE if index == 4 else 10)


def die_while_sending() -> None:
    while not any("pipe_write" in waits_in(tid) for tid in os.listdir("/proc/self/task")):
        time.sleep(0.0001)
    os.kill(os.getpid(), signal.SIGKILL)


def waits_in(tid: str) -> str:
    with open(f"/proc/self/task/{tid}/wchan") as file:
        return file.read()


def prefetch(into: "queue.Queue[bytes]") -> None:
    for batch in DataLoader(Large(), batch_size=None, num_workers=2):
        into.put(batch)


batches: "queue.Queue[bytes]" = queue.Queue(4)
threading.Thread(target=prefetch, args=(batches,), daemon=True).start()
print("begins", flush=True)
while batches.get(timeout=300):
    pass
