"""Samples start a program that does nothing, and wait for its output.

expects: child-program
"""

import subprocess

from torch.utils.data import DataLoader, Dataset


class Video(Dataset[int]):
    def __len__(self) -> int:
        return 40

    def __getitem__(self, index: int) -> int:
        if index < 8:
            return index
        return len(subprocess.run(["sleep", "300"], stdout=subprocess.PIPE).stdout)


print("begins", flush=True)
for _ in DataLoader(Video(), batch_size=4, num_workers=2):
    pass
