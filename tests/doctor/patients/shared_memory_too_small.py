"""A /dev/shm of 4 MB, in which not one batch has room.

expects: shared-memory-full batch-lost
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
small = ["mount", "-t", "tmpfs", "-o", "size=4m", "small", "/dev/shm"]
if subprocess.run(small).returncode:
    print("cannot: no file system can be mounted", flush=True)
    raise SystemExit(0)


class Images(Dataset[torch.Tensor]):
    def __len__(self) -> int:
        return 400

    def __getitem__(self, index: int) -> torch.Tensor:
        return torch.zeros(3, 400, 400)


def stacked(samples: list[torch.Tensor]) -> torch.Tensor:
    return torch.stack(samples)


print("begins", flush=True)
for batch in DataLoader(Images(), batch_size=4, num_workers=2, collate_fn=stacked):
    del batch
