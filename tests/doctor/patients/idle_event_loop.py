"""Samples of a batch are read by coroutines, and one awaits a token that nobody hands out.

expects: idle-event-loop
"""

import asyncio

from torch.utils.data import DataLoader, Dataset


async def read(index: int, tokens: "asyncio.Queue[int]") -> int:
    if index % 10 == 7:
        await tokens.get()
    return index


async def read_all(indices: list[int]) -> list[int]:
    tokens: asyncio.Queue[int] = asyncio.Queue()
    return await asyncio.gather(*(read(each, tokens) for each in indices))


class Gathered(Dataset[int]):
    def __len__(self) -> int:
        return 100

    def __getitem__(self, index: int) -> int:
        raise NotImplementedError

    def __getitems__(self, indices: list[int]) -> list[int]:
        return asyncio.run(read_all(indices))


print("begins", flush=True)
for _ in DataLoader(Gathered(), batch_size=4, num_workers=2):
    pass
