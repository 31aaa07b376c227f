"""A semaphore between processes is not given back after an error; nobody has died.

expects: lock-of-the-dead
"""

import multiprocessing

from torch.utils.data import DataLoader, Dataset

places = multiprocessing.Semaphore(3)


class Limited(Dataset[int]):
    def __len__(self) -> int:
        return 400

    def __getitem__(self, index: int) -> int:
        try:
            return self.decode(index)
        except ZeroDivisionError:
            return 0

    def decode(self, index: int) -> int:
        places.acquire()
        found = 100 // (index % 20)
        places.release()
        return found


print("begins", flush=True)
for _ in DataLoader(Limited(), batch_size=4, num_workers=2):
    pass
