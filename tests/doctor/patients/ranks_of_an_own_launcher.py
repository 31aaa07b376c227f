"""A script starts its ranks itself; rank 0 waits in all_reduce for rank 1, which sleeps.

expects: rank-waits-for-rank; says: loop-busy
"""

import os
import subprocess
import sys
import time
from pathlib import Path

if "RANK" not in os.environ:
    meeting = (Path(sys.argv[1]) / "meeting").as_uri()
    ranks = [
        subprocess.Popen([sys.executable, __file__, meeting], env=os.environ | {"RANK": str(each)})
        for each in range(2)
    ]
    sys.exit(max(each.wait() for each in ranks))

import torch
import torch.distributed as dist

rank = int(os.environ["RANK"])
dist.init_process_group("gloo", init_method=sys.argv[1], rank=rank, world_size=2)
if rank == 0:
    print("begins", flush=True)
    dist.all_reduce(torch.ones(1))
else:
    end = time.monotonic() + 300
    while time.monotonic() < end:
        time.sleep(0.5)
