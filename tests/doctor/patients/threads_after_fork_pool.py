"""Workers use a pool of processes that the main process has made: its threads are not in them.

expects: threads-after-fork
"""

import multiprocessing
from multiprocessing.pool import Pool

from torch.utils.data import DataLoader, Dataset


class Decoded(Dataset[int]):
    def __init__(self, pool: Pool) -> None:
        self.pool = pool

    def __len__(self) -> int:
        return 100

    def __getitem__(self, index: int) -> int:
        return self.pool.apply(abs, (index,))


if __name__ == "__main__":
    with multiprocessing.Pool(1) as pool:
        pool.apply(abs, (0,))
        print("begins", flush=True)
        for _ in DataLoader(Decoded(pool), batch_size=4, num_workers=2):
            pass
