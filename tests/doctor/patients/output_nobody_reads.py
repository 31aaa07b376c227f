"""The loop prints into a pipe, and who should read it does not, as a pager that was put aside.

expects: pipe-without-reader
"""

import os
import subprocess
import sys

from torch.utils.data import DataLoader, Dataset


class Rows(Dataset[int]):
    def __len__(self) -> int:
        return 1000

    def __getitem__(self, index: int) -> int:
        return index


print("begins", flush=True)
reader = subprocess.Popen(["sleep", "300"], stdin=subprocess.PIPE)
assert reader.stdin is not None
os.dup2(reader.stdin.fileno(), 1)
for batch in DataLoader(Rows(), batch_size=4, num_workers=2):
    print("losses", " ".join(["0.125"] * 4000), batch, file=sys.stdout, flush=True)
