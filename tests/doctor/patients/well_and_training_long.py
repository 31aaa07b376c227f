"""Nothing: a step takes long, and the workers wait with batches that do not fit into the pipe.

expects: nothing
"""

import time

from torch.utils.data import DataLoader, Dataset


class Large(Dataset[bytes]):
    def __len__(self) -> int:
        return 1000

    def __getitem__(self, index: int) -> bytes:
        return bytes(1 << 20)


print("begins", flush=True)
for _ in DataLoader(Large(), batch_size=None, num_workers=2):
    time.sleep(5.0)
