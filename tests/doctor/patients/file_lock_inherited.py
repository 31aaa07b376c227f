"""A lock on a file was taken by a process that has ended; what it had started has it still.

expects: file-lock
"""

import fcntl
import subprocess
import sys
from pathlib import Path

from torch.utils.data import DataLoader, Dataset

path = Path(sys.argv[1]) / "cache.lock"
TAKE = """
import fcntl, subprocess, sys
file = open(sys.argv[1], "w")
fcntl.flock(file, fcntl.LOCK_EX)
subprocess.Popen(["sleep", "300"], pass_fds=[file.fileno()], stdout=subprocess.DEVNULL)
"""


class Cached(Dataset[int]):
    def __len__(self) -> int:
        return 100

    def __getitem__(self, index: int) -> int:
        with path.open("w") as file:
            fcntl.flock(file, fcntl.LOCK_EX)
            return index


subprocess.run([sys.executable, "-c", TAKE, str(path)], check=True)
print("begins", flush=True)
for _ in DataLoader(Cached(), batch_size=4, num_workers=2):
    pass
