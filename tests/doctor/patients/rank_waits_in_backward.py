"""Two ranks with DistributedDataParallel: one evaluates alone, the other waits in backward.

expects: rank-waits-for-rank; says: loop-busy
"""

import os
import sys
import time

if "RANK" not in os.environ:
    arguments = ["--nproc-per-node", "2", "--standalone", *sys.argv]
    os.execv(sys.executable, [sys.executable, "-m", "torch.distributed.run", *arguments])

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, TensorDataset


def evaluate() -> None:
    while True:
        time.sleep(0.5)


dist.init_process_group("gloo")
model = DistributedDataParallel(torch.nn.Linear(8, 1))
for step, (rows,) in enumerate(DataLoader(TensorDataset(torch.ones(400, 8)), batch_size=4)):
    if step == 3 and dist.get_rank() == 1:
        print("begins", flush=True)
        evaluate()
    model(rows).sum().backward()
