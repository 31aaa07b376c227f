"""Workers poll a connection five times a second, and nothing comes over it.

expects: wakes-in-vain
"""

import select
import socket

from torch.utils.data import DataLoader, Dataset

server = socket.create_server(("127.0.0.1", 0))


class Polled(Dataset[int]):
    def __len__(self) -> int:
        return 100

    def __getitem__(self, index: int) -> int:
        with socket.create_connection(server.getsockname()) as asked, select.epoll() as poller:
            poller.register(asked, select.EPOLLIN)
            while not poller.poll(0.2):
                pass
            return len(asked.recv(1))


print("begins", flush=True)
for _ in DataLoader(Polled(), batch_size=4, num_workers=2):
    pass
