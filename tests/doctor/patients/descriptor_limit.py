"""Batches of hundreds of small tensors, and 128 files that a worker may open.

expects: descriptor-limit
"""

import resource

import torch
from torch.utils.data import DataLoader, Dataset


class Graphs(Dataset[torch.Tensor]):
    def __len__(self) -> int:
        return 10_000

    def __getitem__(self, index: int) -> torch.Tensor:
        return torch.zeros(index % 7 + 1)


def few(number: int) -> None:
    resource.setrlimit(resource.RLIMIT_NOFILE, (128, 128))


def kept_apart(samples: list[torch.Tensor]) -> list[torch.Tensor]:
    return samples


print("begins", flush=True)
loader = DataLoader(
    Graphs(), batch_size=300, num_workers=2, collate_fn=kept_apart, worker_init_fn=few
)
for _ in loader:
    pass
