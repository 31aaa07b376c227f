"""Samples that an event loop in a thread of the worker reads, from a server that never answers.

expects: network-read
"""

import asyncio
import socket
import threading

from torch.utils.data import DataLoader, Dataset

server = socket.create_server(("127.0.0.1", 0))
PORT = server.getsockname()[1]


async def ask(index: int) -> bytes:
    reader, writer = await asyncio.open_connection("127.0.0.1", PORT)
    writer.write(b"%d\n" % index)
    return await reader.readline()


class Remote(Dataset[int]):
    loop: asyncio.AbstractEventLoop | None = None

    def __len__(self) -> int:
        return 100

    def __getitem__(self, index: int) -> int:
        if self.loop is None:
            self.loop = asyncio.new_event_loop()
            threading.Thread(target=self.loop.run_forever, daemon=True).start()
        return len(asyncio.run_coroutine_threadsafe(ask(index), self.loop).result())


print("begins", flush=True)
for _ in DataLoader(Remote(), batch_size=4, num_workers=2):
    pass
