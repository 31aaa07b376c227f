"""An archive that unpacks to gigabytes, in one sample.

expects: huge-sample
"""

import time

from torch.utils.data import DataLoader, Dataset

PIECE = 6_000_000
MOST = 2_400_000_000


class Archives(Dataset[int]):
    def __len__(self) -> int:
        return 100

    def __getitem__(self, index: int) -> int:
        return self.unpack() if index == 9 else index

    def unpack(self) -> int:
        pieces = []
        while len(pieces) * PIECE < MOST:
            pieces.append(bytearray(b"x") * PIECE)
            time.sleep(0.05)
        time.sleep(200)
        return len(pieces)


print("begins", flush=True)
for _ in DataLoader(Archives(), batch_size=4, num_workers=2):
    pass
