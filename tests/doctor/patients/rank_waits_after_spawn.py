"""Ranks that a script starts with multiprocessing: two in a barrier, the third computes alone.

expects: rank-waits-for-rank; says: loop-busy
"""

import hashlib
import os
import sys

import torch.distributed as dist
import torch.multiprocessing as mp
from torch.utils.data import DataLoader


def train(rank: int, world: int, folder: str) -> None:
    meeting = f"file://{folder}/meeting"
    dist.init_process_group("gloo", init_method=meeting, rank=rank, world_size=world)
    for _ in DataLoader(range(10), num_workers=1):
        pass
    if rank == 0:
        print("begins", flush=True)
        digest = hashlib.sha256()
        while os.getppid() > 1:
            digest.update(bytes(1000))
    dist.barrier()


if __name__ == "__main__":
    mp.start_processes(train, args=(3, sys.argv[1]), nprocs=3, start_method="fork")
