"""Two ranks: one waits in all_reduce, the other one alone has something long to do.

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

dist.init_process_group("gloo")
value = torch.ones(1)
dist.all_reduce(value)
if dist.get_rank() == 1:
    print("begins", flush=True)
    time.sleep(300)
dist.all_reduce(value)
