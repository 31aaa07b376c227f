"""Four workers that each have a pool of eight threads.

expects: oversubscription
"""

import time

import torch
from torch.utils.data import DataLoader, Dataset

THREADS = 8


class Mixed(Dataset[float]):
    def __len__(self) -> int:
        return 100_000

    def __getitem__(self, index: int) -> float:
        image = torch.rand(400, 400)
        for _ in range(20):
            image = (image @ image).softmax(1)
        return float(image.sum())


def many(number: int) -> None:
    torch.set_num_threads(THREADS)


print("begins", flush=True)
give_up = time.monotonic() + 300
for _ in DataLoader(Mixed(), batch_size=8, num_workers=4, worker_init_fn=many):
    if time.monotonic() > give_up:
        break
