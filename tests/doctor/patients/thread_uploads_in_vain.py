"""The loop waits for a thread that sends results to a server which never answers.

expects: network-read
"""

import socket
import threading

from torch.utils.data import DataLoader

server = socket.create_server(("127.0.0.1", 0))


def upload() -> None:
    with socket.create_connection(server.getsockname()) as there:
        there.sendall(b"results")
        there.recv(1)


for step, _ in enumerate(DataLoader(range(100), num_workers=2)):
    if step == 5:
        print("begins", flush=True)
        thread = threading.Thread(target=upload, name="uploader")
        thread.start()
        thread.join()
