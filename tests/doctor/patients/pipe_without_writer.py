"""A named pipe among the files, which nobody writes to.

expects: pipe-without-writer
"""

import os
import sys
from pathlib import Path

from torch.utils.data import DataLoader, Dataset

FOLDER = Path(sys.argv[1])


class Files(Dataset[int]):
    def __len__(self) -> int:
        return 40

    def __getitem__(self, index: int) -> int:
        return len((FOLDER / f"{index}.txt").read_bytes())


for number in range(40):
    file = FOLDER / f"{number}.txt"
    os.mkfifo(file) if number == 13 else file.write_text("x")
print("begins", flush=True)
for _ in DataLoader(Files(), batch_size=4, num_workers=2):
    pass
