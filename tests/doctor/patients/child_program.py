"""A worker waits for a program to end, and that for somebody to read what it writes.

expects: child-program
"""

import subprocess
import sys

from torch.utils.data import DataLoader, Dataset

DECODER = [sys.executable, "-c", "import sys; sys.stdout.write('x' * 1_000_000)"]


class Frames(Dataset[int]):
    def __len__(self) -> int:
        return 100

    def __getitem__(self, index: int) -> int:
        decoder = subprocess.Popen(DECODER, stdout=subprocess.PIPE)
        decoder.wait()
        assert decoder.stdout is not None
        return len(decoder.stdout.read())


batches = iter(DataLoader(Frames(), batch_size=4, num_workers=2))
print("begins", flush=True)
list(batches)
