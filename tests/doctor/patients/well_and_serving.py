"""Nothing: a server with open connections waits for requests, as a notebook's does.

expects: nothing; says: loop-busy
"""

import asyncio

from torch.utils.data import DataLoader


async def serve() -> None:
    server = await asyncio.start_server(lambda reader, writer: None, "127.0.0.1", 0)
    _, writer = await asyncio.open_connection(*server.sockets[0].getsockname())
    print("begins", flush=True)
    await server.serve_forever()
    writer.close()


loader = DataLoader(range(64), batch_size=4, num_workers=2, persistent_workers=True)
next(iter(loader))
asyncio.run(serve())
