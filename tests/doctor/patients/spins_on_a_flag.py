"""A sample looks at a flag that nobody sets, all the time.

expects: endless-sample
"""

from torch.utils.data import DataLoader, Dataset

ready: list[int] = []


def is_ready() -> bool:
    return bool(ready)


class Flagged(Dataset[int]):
    def __len__(self) -> int:
        return 100

    def __getitem__(self, index: int) -> int:
        while index == 50 and not is_ready():
            pass
        return index


print("begins", flush=True)
for _ in DataLoader(Flagged(), batch_size=4, num_workers=2):
    pass
