"""Workers wait for a lock on a file that a process outside of the program has.

expects: file-lock
"""

import fcntl
import subprocess
import sys
from pathlib import Path

from torch.utils.data import DataLoader, Dataset

path = Path(sys.argv[1]) / "cache.lock"
HOLD = "import fcntl, sys, time; f = open(sys.argv[1], 'w'); fcntl.flock(f, 2); print(flush=True)"


class Cached(Dataset[int]):
    def __len__(self) -> int:
        return 100

    def __getitem__(self, index: int) -> int:
        with path.open("w") as file:
            fcntl.flock(file, fcntl.LOCK_EX)
            return index


command = [sys.executable, "-c", f"{HOLD}; time.sleep(300)", str(path)]
holder = subprocess.Popen(command, stdout=subprocess.PIPE)
assert holder.stdout is not None
holder.stdout.readline()
print("begins", flush=True)
for _ in DataLoader(Cached(), batch_size=4, num_workers=2):
    pass
