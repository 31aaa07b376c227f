"""A loop in one sample that never ends.

expects: endless-sample
"""

import time

from torch.utils.data import DataLoader, Dataset


class Crops(Dataset[int]):
    def __len__(self) -> int:
        return 100

    def __getitem__(self, index: int) -> int:
        return self.find_crop(index)

    def find_crop(self, index: int) -> int:
        width = 0 if index == 21 else 10
        begun = time.monotonic()
        while width < 5:
            width = width * 2
            if time.monotonic() - begun > 300:
                break
        return width


print("begins", flush=True)
for _ in DataLoader(Crops(), batch_size=4, num_workers=2):
    pass
