"""The server refuses, and samples try again for ever, with a sleep between.

expects: sleeping-sample
"""

import time
import urllib.error
import urllib.request

from torch.utils.data import DataLoader, Dataset


class Remote(Dataset[int]):
    def __len__(self) -> int:
        return 64

    def read(self, index: int) -> bytes:
        delay_s = 0.2
        while True:
            try:
                return bytes(urllib.request.urlopen(f"http://127.0.0.1:9/{index}").read())
            except urllib.error.URLError:
                time.sleep(delay_s)
                delay_s = min(delay_s * 2, 2.0)

    def __getitem__(self, index: int) -> int:
        return index if index < 8 else len(self.read(index))


print("begins", flush=True)
for _ in DataLoader(Remote(), batch_size=4, num_workers=2):
    pass
