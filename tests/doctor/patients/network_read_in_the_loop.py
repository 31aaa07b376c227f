"""The script itself reports to a server that never answers, between two batches.

expects: network-read
"""

import socket

from torch.utils.data import DataLoader, Dataset

server = socket.create_server(("127.0.0.1", 0))


class Quick(Dataset[int]):
    def __len__(self) -> int:
        return 100

    def __getitem__(self, index: int) -> int:
        return index


def report(step: int) -> bytes:
    with socket.create_connection(server.getsockname()) as there:
        there.sendall(b"%d\n" % step)
        return there.recv(1)


print("begins", flush=True)
for step, _ in enumerate(DataLoader(Quick(), batch_size=4, num_workers=2)):
    if step == 5:
        report(step)
