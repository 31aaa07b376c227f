"""A rank waits for another one that nobody has started.

expects: rank-waits-for-rank
"""

import torch.distributed as dist

print("begins", flush=True)
store = dist.TCPStore("127.0.0.1", 0, 1, is_master=True, wait_for_workers=False)
address = f"tcp://127.0.0.1:{store.port}"
dist.init_process_group("gloo", init_method=address, rank=1, world_size=2)
