"""A sample that never comes, in a worker of antifreeze's own loader.

expects: sample-in-our-worker
"""

import select

from torch.utils.data import Dataset

from antifreeze import DataLoader


class Photos(Dataset[int]):
    def __len__(self) -> int:
        return 10_000

    def __getitem__(self, index: int) -> int:
        if index == 40:
            select.select([], [], [], 250)
        return index


if __name__ == "__main__":
    print("begins", flush=True)
    for _ in DataLoader(Photos(), batch_size=4, num_workers=2):
        pass
