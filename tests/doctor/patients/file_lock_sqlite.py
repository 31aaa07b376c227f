"""The main process has an open transaction in a database; workers write to it and wait.

expects: file-lock
"""

import sqlite3
import sys
from pathlib import Path

from torch.utils.data import DataLoader, Dataset

path = str(Path(sys.argv[1]) / "index.db")


class Counted(Dataset[int]):
    base: sqlite3.Connection | None = None

    def __len__(self) -> int:
        return 100

    def __getitem__(self, index: int) -> int:
        if self.base is None:
            self.base = sqlite3.connect(path, timeout=300)
        self.base.execute("insert into seen values (?)", (index,))
        self.base.commit()
        return index


base = sqlite3.connect(path)
base.execute("create table seen (number integer)")
base.commit()
base.execute("insert into seen values (-1)")
print("begins", flush=True)
for _ in DataLoader(Counted(), batch_size=4, num_workers=2):
    pass
