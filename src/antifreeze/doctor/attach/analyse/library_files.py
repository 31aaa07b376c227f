"""Files of Python and of torch, as they stand in stacks. Pure.

Names of torch's own functions stand beside the code that looks for them; they are those of the
versions in docs/compatibility.md.
"""

from __future__ import annotations

# torch.
LOADER = "torch/utils/data/dataloader.py"
WORKER_LOOP = "torch/utils/data/_utils/worker.py"
FETCH = "torch/utils/data/_utils/fetch.py"
PIN_MEMORY = "torch/utils/data/_utils/pin_memory.py"
SPAWN_OF_TORCH = "torch/multiprocessing/spawn.py"

# multiprocessing.
CONNECTION = "multiprocessing/connection.py"
FORK_SERVER = "multiprocessing/forkserver.py"
MANAGERS = "multiprocessing/managers.py"
POOL = "multiprocessing/pool.py"
PROCESS = "multiprocessing/process.py"
QUEUES = "multiprocessing/queues.py"
SPAWN = "multiprocessing/spawn.py"
SYNCHRONIZE = "multiprocessing/synchronize.py"
MULTIPROCESSING_UTIL = "multiprocessing/util.py"

# asyncio and concurrent.futures.
EVENT_LOOP = "asyncio/base_events.py"
FUTURE = "concurrent/futures/_base.py"
EXECUTOR = "concurrent/futures/thread.py"
