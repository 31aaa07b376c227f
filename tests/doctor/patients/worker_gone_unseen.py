"""A worker is killed, and the program has had its children buried by the kernel (SIGCHLD ignored):
torch asks whether it is alive, is told nothing, and takes that for yes.

expects: worker-gone
"""

import os
import signal
import time

from torch.utils.data import DataLoader, Dataset


class Killed(Dataset[int]):
    def __len__(self) -> int:
        return 1000

    def __getitem__(self, index: int) -> int:
        time.sleep(0.01)
        if index == 40:
            os.kill(os.getpid(), signal.SIGKILL)
        return index


loader = iter(DataLoader(Killed(), batch_size=4, num_workers=3))
signal.signal(signal.SIGCHLD, signal.SIG_IGN)
print("begins", flush=True)
for _ in loader:
    pass
