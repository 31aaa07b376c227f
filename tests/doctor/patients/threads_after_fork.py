"""A thread pool made in the main process, used in forked workers.

expects: threads-after-fork
"""

import time
from concurrent.futures import ThreadPoolExecutor

from torch.utils.data import DataLoader, Dataset


class Remote(Dataset[int]):
    def __init__(self) -> None:
        self.pool = ThreadPoolExecutor(2)
        self.size = self.pool.submit(lambda: 100).result()

    def __len__(self) -> int:
        return self.size

    def __getitem__(self, index: int) -> int:
        return self.pool.submit(lambda: index).result()


data = Remote()
time.sleep(0.2)
print("begins", flush=True)
for _ in DataLoader(data, batch_size=4, num_workers=2):
    pass
