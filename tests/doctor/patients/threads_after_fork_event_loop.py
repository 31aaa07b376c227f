"""An event loop in a thread of the main process, used in forked workers.

expects: threads-after-fork
"""

import asyncio
import threading
from collections.abc import Iterator

from torch.utils.data import DataLoader, IterableDataset

loop = asyncio.new_event_loop()
threading.Thread(target=loop.run_forever, daemon=True).start()


async def get(index: int) -> int:
    await asyncio.sleep(0.001)
    return index


def fetch(index: int) -> int:
    return asyncio.run_coroutine_threadsafe(get(index), loop).result()


class Stream(IterableDataset[int]):
    def __iter__(self) -> Iterator[int]:
        yield from map(fetch, range(100))


fetch(0)
print("begins", flush=True)
for _ in DataLoader(Stream(), batch_size=None, num_workers=2):
    pass
