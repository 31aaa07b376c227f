"""A process of a pool was killed; the pool has another one, and the loop waits for the result.

expects: word-of-another-process
"""

import multiprocessing
import os
import signal

from torch.utils.data import DataLoader, Dataset


class Rows(Dataset[int]):
    def __len__(self) -> int:
        return 100

    def __getitem__(self, index: int) -> int:
        return index


def score(row: int) -> int:
    if row == 7:
        os.kill(os.getpid(), signal.SIGKILL)  # as for want of memory
    return row


def main() -> None:
    with multiprocessing.Pool(2) as pool:
        for batch in DataLoader(Rows(), batch_size=4, num_workers=2):
            print("begins", flush=True)
            pool.map(score, batch.tolist())


if __name__ == "__main__":
    main()
