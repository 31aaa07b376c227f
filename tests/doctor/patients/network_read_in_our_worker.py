"""A sample in a worker of antifreeze's waits for a server.

expects: network-read
"""

import socket

from torch.utils.data import Dataset

from antifreeze import DataLoader

server = socket.create_server(("127.0.0.1", 0))


class Remote(Dataset[int]):
    def __len__(self) -> int:
        return 100

    def __getitem__(self, index: int) -> int:
        if index == 17:
            with socket.create_connection(server.getsockname()) as there:
                return len(there.recv(1))
        return index


if __name__ == "__main__":
    print("begins", flush=True)
    for _ in DataLoader(Remote(), batch_size=4, num_workers=2):
        pass
