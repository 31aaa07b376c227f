"""Nothing: the epoch is over, and the script writes a checkpoint that takes its time.

expects: nothing; says: loop-busy
"""

import time
from pathlib import Path
from sys import argv

from torch.utils.data import DataLoader, Dataset


class Quick(Dataset[int]):
    def __len__(self) -> int:
        return 64

    def __getitem__(self, index: int) -> int:
        return index


def save(folder: Path) -> None:
    for _ in range(1500):
        (folder / "checkpoint").write_bytes(b"x" * 1_000_000)
        time.sleep(0.2)


loader = DataLoader(Quick(), batch_size=8, num_workers=2, persistent_workers=True)
for _ in loader:
    pass
print("begins", flush=True)
save(Path(argv[1]))
