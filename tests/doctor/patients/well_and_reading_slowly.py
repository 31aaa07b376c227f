"""Nothing: samples come over a connection, a few bytes a second, and take a minute each.

expects: nothing; says: slow-samples
"""

import socket
import threading
import time

from torch.utils.data import DataLoader, Dataset

server = socket.create_server(("127.0.0.1", 0))


def answer(client: socket.socket) -> None:
    for _ in range(120):
        client.send(b"some")
        time.sleep(0.5)
    client.close()


def serve() -> None:
    while True:
        threading.Thread(target=answer, args=server.accept()[:1], daemon=True).start()


class Remote(Dataset[int]):
    def __len__(self) -> int:
        return 100

    def __getitem__(self, index: int) -> int:
        count = 0
        with socket.create_connection(server.getsockname(), 30) as asked:
            while some := asked.recv(64):
                count += len(some)
        return count


threading.Thread(target=serve, daemon=True).start()
print("begins", flush=True)
for _ in DataLoader(Remote(), batch_size=1, num_workers=2):
    pass
