"""A worker was killed, and the main thread is in C code that takes long: it does not know.

expects: zombie-children
"""

import os
import signal

import torch
from torch.utils.data import DataLoader, Dataset


class Killed(Dataset[int]):
    def __len__(self) -> int:
        return 100

    def __getitem__(self, index: int) -> int:
        if index == 6:
            os.kill(os.getpid(), signal.SIGKILL)
        return index


torch.set_num_threads(1)
signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGCHLD])  # as some servers do in all threads
batches = iter(DataLoader(Killed(), batch_size=2, num_workers=2))
next(batches)
print("begins", flush=True)
signal.sigtimedwait([signal.SIGUSR1], 290)
