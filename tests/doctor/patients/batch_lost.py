"""A batch that cannot be pickled: the queue's thread drops it.

expects: batch-lost
"""

from collections.abc import Callable

from torch.utils.data import DataLoader, Dataset


class Lazy(Dataset[Callable[[], int]]):
    def __len__(self) -> int:
        return 100

    def __getitem__(self, index: int) -> Callable[[], int]:
        return lambda: index


def as_it_is(samples: list[Callable[[], int]]) -> list[Callable[[], int]]:
    return samples


print("begins", flush=True)
for _ in DataLoader(Lazy(), batch_size=4, num_workers=2, collate_fn=as_it_is):
    pass
