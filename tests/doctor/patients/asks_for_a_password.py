"""A library asks for a password before the loop.

expects: waits-for-a-person
"""

import getpass
import os
import pty

from torch.utils.data import DataLoader

_, terminal = pty.openpty()
os.dup2(terminal, 0)


def log_in() -> str:
    return getpass.getpass("token: ")


print("begins", flush=True)
log_in()
for _ in DataLoader([1, 2, 3], num_workers=2):
    pass
