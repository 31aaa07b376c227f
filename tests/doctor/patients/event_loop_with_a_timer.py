"""An event loop wakes up ten times a second for its keep-alive; what a sample awaits never comes.

expects: idle-event-loop
"""

import asyncio

from torch.utils.data import DataLoader, Dataset


async def keep_alive() -> None:
    while True:
        await asyncio.sleep(0.1)


async def read(index: int) -> int:
    beats = asyncio.create_task(keep_alive())
    await asyncio.Event().wait()
    beats.cancel()
    return index


class Awaited(Dataset[int]):
    def __len__(self) -> int:
        return 100

    def __getitem__(self, index: int) -> int:
        return asyncio.run(read(index))


print("begins", flush=True)
for _ in DataLoader(Awaited(), batch_size=4, num_workers=2):
    pass
