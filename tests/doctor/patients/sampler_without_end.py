"""A sampler looks for a class that has no samples; the workers have nothing to do.

expects: slow-sampler
"""

import random
from collections.abc import Iterator

from torch.utils.data import DataLoader, Sampler


class Balanced(Sampler[list[int]]):
    labels = (0,) * 100

    def __iter__(self) -> Iterator[list[int]]:
        batch: list[int] = []
        while True:
            index = random.randrange(len(self.labels))
            if self.labels[index] == 7:
                batch.append(index)
            if len(batch) == 4:
                yield batch
                batch = []


print("begins", flush=True)
for _ in DataLoader(range(100), batch_sampler=Balanced(), num_workers=2):
    pass
