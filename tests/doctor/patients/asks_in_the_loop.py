"""The script asks for a consent in the middle of the loop.

expects: waits-for-a-person
"""

import os
import pty

from torch.utils.data import DataLoader, Dataset

_, terminal = pty.openpty()
os.dup2(terminal, 0)


class Quick(Dataset[int]):
    def __len__(self) -> int:
        return 100

    def __getitem__(self, index: int) -> int:
        return index


def overwrite() -> bool:
    return input("overwrite the old checkpoint? ") == "y"


print("begins", flush=True)
for step, _ in enumerate(DataLoader(Quick(), batch_size=4, num_workers=2)):
    if step == 5:
        overwrite()
