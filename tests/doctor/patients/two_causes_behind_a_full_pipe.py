"""The loop prints into a pipe that nobody reads, and a worker waits for a server that is silent.

expects: pipe-without-reader, network-read
"""

import os
import socket

from torch.utils.data import DataLoader, Dataset

server = socket.create_server(("127.0.0.1", 0))


class Remote(Dataset[int]):
    def __len__(self) -> int:
        return 100

    def __getitem__(self, index: int) -> int:
        if index == 6:
            socket.create_connection(server.getsockname()).recv(1)
        return index


print("begins", flush=True)
read, write = os.pipe()
os.dup2(write, 2)
for _ in DataLoader(Remote(), batch_size=4, num_workers=2):
    os.write(2, b"batch " + bytes(100_000))
