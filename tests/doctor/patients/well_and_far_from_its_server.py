"""Nothing is stuck: a server takes six seconds for each answer.

expects: nothing; says: slow-samples
"""

import socket
import threading
import time

from torch.utils.data import DataLoader, Dataset

server = socket.create_server(("127.0.0.1", 0))


def answer(client: socket.socket) -> None:
    with client:
        client.recv(1)
        time.sleep(6)
        client.sendall(b"!")


def serve() -> None:
    while True:
        threading.Thread(target=answer, args=(server.accept()[0],), daemon=True).start()


class Remote(Dataset[int]):
    def __len__(self) -> int:
        return 1000

    def __getitem__(self, index: int) -> int:
        with socket.create_connection(server.getsockname()) as asked:
            asked.sendall(b"?")
            return len(asked.recv(1))


threading.Thread(target=serve, daemon=True).start()
print("begins", flush=True)
for _ in DataLoader(Remote(), batch_size=2, num_workers=2):
    pass
