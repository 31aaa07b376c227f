"""A worker that somebody stopped.

expects: worker-stopped
"""

import os
import signal

from torch.utils.data import DataLoader, Dataset


class Stops(Dataset[int]):
    def __len__(self) -> int:
        return 100

    def __getitem__(self, index: int) -> int:
        if index == 8:
            os.kill(os.getpid(), signal.SIGSTOP)
        return index


print("begins", flush=True)
for _ in DataLoader(Stops(), batch_size=4, num_workers=2):
    pass
