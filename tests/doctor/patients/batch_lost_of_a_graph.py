"""A tensor that is part of an autograd graph, late, in one of several spawned workers.

expects: batch-lost
"""

import torch
from torch.utils.data import DataLoader, IterableDataset, get_worker_info


class Scaled(IterableDataset[torch.Tensor]):
    def __init__(self) -> None:
        self.scale = torch.ones(3, requires_grad=True)

    def __iter__(self):
        info = get_worker_info()
        for number in range(20):
            value = self.scale * number
            late = info is not None and info.id == 1 and number == 6
            yield value if late else value.detach()


if __name__ == "__main__":
    loader = DataLoader(
        Scaled(), batch_size=None, num_workers=3, multiprocessing_context="spawn", prefetch_factor=1
    )
    for at, _ in enumerate(loader):
        if at == 6:
            print("begins", flush=True)
