"""Workers whose main process was killed, and that want to end: each has a batch to send first, and
holds open the pipe that it would have to see closed.

expects: orphaned-workers
"""

import os
import subprocess
import sys
import time

from torch.utils.data import DataLoader, Dataset

NOTICE_S = 8.0  # torch's workers look for their parent every five


class Large(Dataset[bytes]):
    def __len__(self) -> int:
        return 100

    def __getitem__(self, index: int) -> bytes:
        if index < 2:
            os.write(1, f"{os.getpid()}\n".encode())  # at once: two of them write to one pipe
        return bytes(1 << 20)


if sys.argv[-1] == "train":
    batches = iter(DataLoader(Large(), batch_size=None, num_workers=2))
    time.sleep(280)
else:
    script = subprocess.Popen(
        [sys.executable, __file__, "train"], stdout=subprocess.PIPE, text=True
    )
    assert script.stdout is not None
    workers = [script.stdout.readline().strip() for _ in range(2)]
    time.sleep(1.0)
    script.kill()
    script.wait()
    time.sleep(NOTICE_S)
    print(f"ask: {workers[0]}\nbegins", flush=True)
    time.sleep(280)
