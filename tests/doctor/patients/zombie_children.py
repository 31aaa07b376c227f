"""A worker reads what a program says to its end, which never comes: the worker has its own copy of
the pipe's other end open.

expects: zombie-children
"""

import os
import subprocess

from torch.utils.data import DataLoader, Dataset


class Decoded(Dataset[str]):
    def __len__(self) -> int:
        return 100

    def __getitem__(self, index: int) -> str:
        here, there = os.pipe()
        decoder = subprocess.Popen(["echo", str(index)], stdout=there)
        with open(here) as said:
            text = said.read()
        decoder.wait()
        return text


print("begins", flush=True)
for _ in DataLoader(Decoded(), batch_size=2, num_workers=2):
    pass
