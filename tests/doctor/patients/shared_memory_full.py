"""A /dev/shm of 8 MB, and a collate function of one's own: the copy to it fails in a thread.

expects: shared-memory-full
"""

import os
import subprocess
import sys

import torch
from torch.utils.data import DataLoader, Dataset

if "inside" not in sys.argv:
    try:
        os.execvp("unshare", ["unshare", "-m", sys.executable, __file__, *sys.argv[1:], "inside"])
    except OSError as error:
        print("cannot:", error, flush=True)
        raise SystemExit(0) from None
small = ["mount", "-t", "tmpfs", "-o", "size=8m", "small", "/dev/shm"]
if subprocess.run(small).returncode:
    print("cannot: no file system can be mounted", flush=True)
    raise SystemExit(0)


class Images(Dataset[torch.Tensor]):
    def __len__(self) -> int:
        return 400

    def __getitem__(self, index: int) -> torch.Tensor:
        return torch.zeros(3, 200, 200)


def stacked(samples: list[torch.Tensor]) -> torch.Tensor:
    return torch.stack(samples)


kept = []
print("begins", flush=True)
for batch in DataLoader(Images(), batch_size=4, num_workers=2, collate_fn=stacked):
    kept.append(batch)
