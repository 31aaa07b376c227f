"""A breakpoint in a worker, by the debugger that people use in forked processes.

expects: waits-for-a-person
"""

import os
import pdb
import pty
import sys

from torch.utils.data import DataLoader, Dataset

_, terminal = pty.openpty()
os.dup2(terminal, 0)
NAME = os.ttyname(terminal)


class ForkedPdb(pdb.Pdb):
    def interaction(self, *args: object, **kwargs: object) -> None:
        was = sys.stdin
        try:
            sys.stdin = open(NAME)  # noqa: SIM115
            super().interaction(*args, **kwargs)
        finally:
            sys.stdin = was


class Debugged(Dataset[int]):
    def __len__(self) -> int:
        return 100

    def __getitem__(self, index: int) -> int:
        if index == 9:
            ForkedPdb().set_trace()
        return index


print("begins", flush=True)
for _ in DataLoader(Debugged(), batch_size=4, num_workers=2):
    pass
