"""Workers whose main process was killed while they were in a long sample.

expects: orphaned-workers
"""

import os
import signal
import subprocess
import sys
import time

from torch.utils.data import DataLoader, Dataset


class Slow(Dataset[int]):
    def __len__(self) -> int:
        return 100

    def __getitem__(self, index: int) -> int:
        if index % 2 == 0:
            os.write(1, f"{os.getpid()}\n".encode())  # at once: two of them write to one pipe
        time.sleep(290)
        return index


def train() -> None:
    for _ in DataLoader(Slow(), batch_size=2, num_workers=2):
        pass


if sys.argv[-1] == "train":
    train()
else:
    script = subprocess.Popen(
        [sys.executable, __file__, "train"], stdout=subprocess.PIPE, text=True
    )
    assert script.stdout is not None
    workers = [script.stdout.readline().strip() for _ in range(2)]
    script.send_signal(signal.SIGKILL)
    script.wait()
    print(f"ask: {workers[0]}\nbegins", flush=True)
    time.sleep(290)
