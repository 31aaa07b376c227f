"""Two ranks train; the workers of one of them wait for a lock, and the other rank for it.

expects: lock-held-at-fork rank-waits-for-rank
"""

import os
import sys
import threading
import time

if "RANK" not in os.environ:
    arguments = ["--nproc-per-node", "2", "--standalone", *sys.argv]
    os.execv(sys.executable, [sys.executable, "-m", "torch.distributed.run", *arguments])

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, Dataset

lock = threading.Lock()


class Rows(Dataset[torch.Tensor]):
    def __len__(self) -> int:
        return 1000

    def __getitem__(self, index: int) -> torch.Tensor:
        if index >= 40:
            with lock:
                pass
        return torch.ones(3)


def report() -> None:
    with lock:
        time.sleep(300)


dist.init_process_group("gloo")
model = DistributedDataParallel(torch.nn.Linear(3, 1))
if dist.get_rank() == 1:
    threading.Thread(target=report, daemon=True).start()
    time.sleep(0.2)
    print("begins", flush=True)
for batch in DataLoader(Rows(), batch_size=4, num_workers=1):
    model(batch).sum().backward()
