"""Without workers: a sample sleeps for an hour, since a file is not there.

expects: sleeping-sample
"""

import sys
import time
from pathlib import Path

from torch.utils.data import DataLoader, Dataset

folder = Path(sys.argv[1])


class Shards(Dataset[int]):
    def __len__(self) -> int:
        return 10

    def __getitem__(self, index: int) -> int:
        if index == 3:
            print("begins", flush=True)
        while index > 2 and not (folder / f"{index}.pt").exists():
            time.sleep(3600.0)
        return index


for _ in DataLoader(Shards()):
    pass
