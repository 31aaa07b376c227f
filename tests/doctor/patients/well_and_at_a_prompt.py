"""Nothing: the script is done, and Python stands at its prompt.

expects: nothing; says: waits-for-a-person
"""

import os
import sys

from torch.utils.data import DataLoader, Dataset

if not sys.flags.interactive:
    reading, writing = os.pipe()
    os.dup2(reading, 0)  # nobody types anything
    os.set_inheritable(writing, True)
    os.execv(sys.executable, [sys.executable, "-i", __file__, *sys.argv[1:]])


class Rows(Dataset[int]):
    def __len__(self) -> int:
        return 20

    def __getitem__(self, index: int) -> int:
        return index


loader = DataLoader(Rows(), batch_size=4, num_workers=2, persistent_workers=True)
print(len(list(loader)), "begins", flush=True)
