"""torch computes with several threads in the main process, and then in forked workers.

expects: openmp-after-fork
"""

import torch
from torch.utils.data import DataLoader, Dataset


def heavy() -> torch.Tensor:
    torch.set_num_threads(2)
    numbers = torch.randn(1000, 1000)
    return (numbers * numbers).exp().sum()


class Augmented(Dataset[torch.Tensor]):
    def __len__(self) -> int:
        return 100

    def __getitem__(self, index: int) -> torch.Tensor:
        return heavy()


heavy()
print("begins", flush=True)
for _ in DataLoader(Augmented(), batch_size=4, num_workers=2):
    pass
