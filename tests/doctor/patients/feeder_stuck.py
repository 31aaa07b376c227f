"""A worker's batch does not fit into the pipe; the main process waits for the worker to say so by
other means instead of taking it.

expects: feeder-stuck
"""

import multiprocessing

from torch.utils.data import DataLoader, Dataset

told = multiprocessing.Queue()
LAST = 7


class Telling(Dataset[bytes]):
    def __len__(self) -> int:
        return 40

    def __getitem__(self, index: int) -> bytes:
        if index == LAST:
            told.put(index)
        return bytes(1 << 20)


def take_all(samples: list[bytes]) -> list[bytes]:
    return samples


batches = iter(DataLoader(Telling(), batch_size=2, num_workers=2, collate_fn=take_all))
next(batches)
print("begins", flush=True)
while told.get() != LAST + 1:  # it comes after the batches that nobody takes
    pass
