"""Threads of a client library are in the main process alone; its poller in workers waits for them.

expects: native-pool-after-fork
"""

import ctypes
import sys
import threading
from pathlib import Path

from torch.utils.data import DataLoader, Dataset

# As gRPC does where its support for forks is off: seen with grpcio 1.85, names and polling alike.
CLIENT = """
import select

def call():
    with select.epoll() as poller:
        while not poller.poll(0.2):
            pass
"""
NAMES = (b"grpc_global_tim", b"event_engine", b"event_engine", b"lifeguard")


def rest(name: bytes) -> None:
    ctypes.CDLL(None).prctl(15, name, 0, 0, 0)
    threading.Event().wait()


package = Path(sys.argv[1]) / "site-packages" / "grpc"
package.mkdir(parents=True)
(package / "__init__.py").write_text(CLIENT)
sys.path.insert(0, str(package.parent))
import grpc  # noqa: E402

for name in NAMES:
    threading.Thread(target=rest, args=(name,), name=name.decode(), daemon=True).start()


class Asked(Dataset[int]):
    def __len__(self) -> int:
        return 100

    def __getitem__(self, index: int) -> int:
        grpc.call()
        return index


print("begins", flush=True)
for _ in DataLoader(Asked(), batch_size=4, num_workers=2):
    pass
