"""A worker waits for a program that never ends.

expects: child-program
"""

import subprocess

from torch.utils.data import DataLoader, Dataset


class Fetched(Dataset[int]):
    def __len__(self) -> int:
        return 100

    def __getitem__(self, index: int) -> int:
        return subprocess.run(["sleep", "100000"]).returncode


batches = iter(DataLoader(Fetched(), batch_size=4, num_workers=2))
print("begins", flush=True)
list(batches)
