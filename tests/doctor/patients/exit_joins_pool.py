"""The program is over and joins a pool, one of whose processes waits for ever.

expects: exit-joins-stuck-worker
"""

import multiprocessing
import os

from torch.utils.data import DataLoader, Dataset


class Rows(Dataset[int]):
    def __len__(self) -> int:
        return 20

    def __getitem__(self, index: int) -> int:
        return index


def plot(row: int) -> None:
    reading, _ = os.pipe()
    os.read(reading, row + 1)


def main() -> None:
    pool = multiprocessing.Pool(2)
    for batch in DataLoader(Rows(), batch_size=20, num_workers=2):
        pool.apply_async(plot, (len(batch),))
    pool.close()
    print("begins", flush=True)
    pool.join()


if __name__ == "__main__":
    main()
