"""A thread's event loop wakes up for its keep-alive alone, and the worker waits for its result.

expects: idle-event-loop
"""

import asyncio
import threading

from torch.utils.data import DataLoader, Dataset


async def keep_alive() -> None:
    while True:
        await asyncio.sleep(0.1)


async def read(index: int) -> int:
    await asyncio.Event().wait()
    return index


class Awaited(Dataset[int]):
    loop: asyncio.AbstractEventLoop | None = None

    def __len__(self) -> int:
        return 100

    def __getitem__(self, index: int) -> int:
        if self.loop is None:
            self.loop = asyncio.new_event_loop()
            threading.Thread(target=self.loop.run_forever, daemon=True).start()
            asyncio.run_coroutine_threadsafe(keep_alive(), self.loop)
        return asyncio.run_coroutine_threadsafe(read(index), self.loop).result()


print("begins", flush=True)
for _ in DataLoader(Awaited(), batch_size=4, num_workers=2):
    pass
