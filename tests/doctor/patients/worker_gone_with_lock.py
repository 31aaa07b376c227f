"""A worker is killed while it has the queue's lock for writing: the others never get it. The loop's
SIGCHLD is handled by the program, which buries whatever has ended.

expects: worker-gone
"""

import contextlib
import os
import signal
import threading
import time

from torch.utils.data import DataLoader, Dataset

LARGE = 1 << 20


class Large(Dataset[bytes]):
    def __len__(self) -> int:
        return 100

    def __getitem__(self, index: int) -> bytes:
        if index == 4:
            threading.Thread(target=die_while_sending, daemon=True).start()
        if index in (5, 7):
            time.sleep(2.0)
        return bytes(LARGE)


def die_while_sending() -> None:
    while not any("pipe_write" in waits_in(tid) for tid in os.listdir("/proc/self/task")):
        time.sleep(0.0001)
    os.kill(os.getpid(), signal.SIGKILL)


def waits_in(tid: str) -> str:
    with open(f"/proc/self/task/{tid}/wchan") as file:
        return file.read()


def bury(number: int, frame: object) -> None:
    with contextlib.suppress(ChildProcessError):
        while os.waitpid(-1, os.WNOHANG)[0]:
            pass


batches = iter(DataLoader(Large(), batch_size=None, num_workers=2, persistent_workers=True))
signal.signal(signal.SIGCHLD, bury)
print("begins", flush=True)
time.sleep(0.5)
for _ in batches:
    time.sleep(0.2)
