"""One worker opens a named pipe that nobody writes to, the other stands at a debugger's prompt.

expects: pipe-without-writer waits-for-a-person
"""

import os
import pdb
import sys
from pathlib import Path

from torch.utils.data import DataLoader, Dataset, get_worker_info

folder = Path(sys.argv[1])
os.mkfifo(folder / "data")
os.mkfifo(folder / "typed")
typed = os.fdopen(os.open(folder / "typed", os.O_RDWR))  # nobody types


class Rows(Dataset[int]):
    def __len__(self) -> int:
        return 400

    def __getitem__(self, index: int) -> int:
        worker = get_worker_info()
        if index >= 8 and worker is not None:
            if worker.id == 0:
                return len((folder / "data").read_bytes())
            pdb.Pdb(stdin=typed, stdout=sys.stderr).set_trace()
        return index


print("begins", flush=True)
for _ in DataLoader(Rows(), batch_size=4, num_workers=2):
    pass
