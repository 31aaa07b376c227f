"""Nothing: samples come from a server that takes a third of a second for each.

expects: nothing; says: slow-samples
"""

import socket
import threading
import time

from torch.utils.data import DataLoader, Dataset

server = socket.create_server(("127.0.0.1", 0))


def answer(there: socket.socket) -> None:
    with there:
        while there.recv(1):
            time.sleep(0.3)
            there.sendall(b"x")


def serve() -> None:
    while True:
        there, _ = server.accept()
        threading.Thread(target=answer, args=(there,), daemon=True).start()


class Remote(Dataset[int]):
    there: socket.socket | None = None

    def __len__(self) -> int:
        return 100_000

    def __getitem__(self, index: int) -> int:
        if self.there is None:
            self.there = socket.create_connection(server.getsockname())
        self.there.sendall(b"?")
        return len(self.there.recv(1))


threading.Thread(target=serve, daemon=True).start()
give_up = time.monotonic() + 300
for step, _ in enumerate(DataLoader(Remote(), batch_size=4, num_workers=2)):
    if step == 1:
        print("begins", flush=True)
    if time.monotonic() > give_up:
        break
