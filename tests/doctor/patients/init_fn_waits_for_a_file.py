"""worker_init_fn looks again and again for a file that nobody writes.

expects: sleeping-sample
"""

import sys
import time
from pathlib import Path

from torch.utils.data import DataLoader, Dataset

index = Path(sys.argv[1]) / "index.ready"


class Rows(Dataset[int]):
    def __len__(self) -> int:
        return 100

    def __getitem__(self, number: int) -> int:
        return number


def wait_for_index(worker: int) -> None:
    while not index.exists():
        time.sleep(0.4)


print("begins", flush=True)
for _ in DataLoader(Rows(), batch_size=4, num_workers=2, worker_init_fn=wait_for_index):
    pass
