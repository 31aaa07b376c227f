"""A server that takes the request and never answers.

expects: network-read
"""

import socket
import urllib.request

from torch.utils.data import DataLoader, Dataset

server = socket.create_server(("127.0.0.1", 0))
PORT = server.getsockname()[1]


class Remote(Dataset[int]):
    def __len__(self) -> int:
        return 100

    def __getitem__(self, index: int) -> int:
        if index == 6:
            with urllib.request.urlopen(f"http://127.0.0.1:{PORT}/{index}") as answer:
                return len(answer.read())
        return index


print("begins", flush=True)
for _ in DataLoader(Remote(), batch_size=4, num_workers=2):
    pass
