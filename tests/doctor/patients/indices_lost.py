"""Indices that cannot be pickled: the main process drops them, and the workers never get any.

expects: batch-lost
"""

from collections.abc import Callable, Iterator
from typing import Any

from torch.utils.data import DataLoader, Dataset, Sampler


class Crops(Sampler[Any]):
    def __iter__(self) -> Iterator[Callable[[], int]]:
        for index in range(100):
            yield lambda at=index: at


class Cropped(Dataset[int]):
    def __len__(self) -> int:
        return 100

    def __getitem__(self, crop: Callable[[], int]) -> int:
        return crop()


print("begins", flush=True)
for _ in DataLoader(Cropped(), batch_size=4, num_workers=2, sampler=Crops()):
    pass
