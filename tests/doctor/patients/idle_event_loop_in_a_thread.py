"""A worker of antifreeze's has an event loop in a thread; a lock in it was not given back.

expects: idle-event-loop
"""

import asyncio
import threading

from torch.utils.data import Dataset

from antifreeze import DataLoader


class Client:
    def __init__(self) -> None:
        self.loop = asyncio.new_event_loop()
        self.turn = asyncio.Lock()
        threading.Thread(target=self.loop.run_forever, name="client", daemon=True).start()

    async def read(self, index: int) -> int:
        await self.turn.acquire()
        if index != 9:
            self.turn.release()
        return index

    def get(self, index: int) -> int:
        return asyncio.run_coroutine_threadsafe(self.read(index), self.loop).result()


class Remote(Dataset[int]):
    client: Client | None = None

    def __len__(self) -> int:
        return 100

    def __getitem__(self, index: int) -> int:
        if self.client is None:
            self.client = Client()
        return self.client.get(index)


if __name__ == "__main__":
    print("begins", flush=True)
    for _ in DataLoader(Remote(), batch_size=4, num_workers=1):
        pass
