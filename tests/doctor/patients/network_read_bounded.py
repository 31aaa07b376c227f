"""A server that never answers, asked by sockets with a time limit that is far too long.

expects: network-read
"""

import http.client
import socket

from torch.utils.data import DataLoader, Dataset

server = socket.create_server(("127.0.0.1", 0))
PORT = server.getsockname()[1]


class Remote(Dataset[int]):
    def __init__(self, port: int) -> None:
        self.port = port

    def __len__(self) -> int:
        return 100

    def __getitem__(self, index: int) -> int:
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=3000)
        connection.request("GET", f"/{index}")
        return connection.getresponse().status


if __name__ == "__main__":
    print("begins", flush=True)
    for _ in DataLoader(Remote(PORT), batch_size=4, num_workers=2, multiprocessing_context="spawn"):
        pass
