"""Nothing: a thread pins memory, samples are slow, and the loop waits for them. (torch starts the
thread only where there is an accelerator; here it is told that there is one.)

expects: nothing; says: slow-samples
"""

import time

import torch
from torch.utils.data import DataLoader, Dataset

torch.accelerator.is_available = lambda: True
torch.accelerator.current_device_index = lambda: 0
torch.accelerator.set_device_index = lambda _: None


class Slow(Dataset[str]):
    def __len__(self) -> int:
        return 1000

    def __getitem__(self, index: int) -> str:
        time.sleep(0.7)
        return str(index)


print("begins", flush=True)
for _ in DataLoader(Slow(), batch_size=2, num_workers=2, pin_memory=True):
    pass
