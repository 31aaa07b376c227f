"""Nothing: epochs are short, so that workers are started and ended all the time.

expects: nothing
"""

import time

from torch.utils.data import DataLoader, Dataset


class Rows(Dataset[int]):
    def __len__(self) -> int:
        return 40

    def __getitem__(self, index: int) -> int:
        time.sleep(0.005)
        return index


print("begins", flush=True)
give_up = time.monotonic() + 290
while time.monotonic() < give_up:
    for _ in DataLoader(Rows(), batch_size=4, num_workers=2):
        pass
