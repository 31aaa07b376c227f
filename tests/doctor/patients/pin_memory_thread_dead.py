"""The thread that pins memory has died of a batch that cannot be read, and nobody looks after it:
with `timeout`, torch waits for the whole of it first. (torch starts the thread only where there is
an accelerator; here it is told that there is one. The thread itself is torch's.)

expects: pin-memory-thread-dead
"""

import torch
from torch.utils.data import DataLoader, Dataset

torch.accelerator.is_available = lambda: True
torch.accelerator.current_device_index = lambda: 0
torch.accelerator.set_device_index = lambda _: None


class Unreadable:
    def __reduce__(self):
        return read, ()


def read() -> None:
    raise ValueError("it was written by another version")


class Rows(Dataset[object]):
    def __len__(self) -> int:
        return 100

    def __getitem__(self, index: int) -> object:
        return Unreadable() if index == 6 else str(index)


def as_it_is(samples: list[object]) -> list[object]:
    return samples


print("begins", flush=True)
for _ in DataLoader(
    Rows(), batch_size=2, num_workers=2, collate_fn=as_it_is, pin_memory=True, timeout=280
):
    pass
