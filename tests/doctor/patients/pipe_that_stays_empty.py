"""A named pipe whose writer has opened it and writes nothing, read in an iterable dataset.

expects: pipe-without-writer
"""

import os
import sys
from collections.abc import Iterator
from pathlib import Path

from torch.utils.data import DataLoader, IterableDataset

PIPE = Path(sys.argv[1]) / "events"


class Events(IterableDataset[str]):
    def __iter__(self) -> Iterator[str]:
        with PIPE.open() as events:
            yield from events


os.mkfifo(PIPE)
writer = os.open(PIPE, os.O_RDWR)
print("begins", flush=True)
for _ in DataLoader(Events(), batch_size=None, num_workers=1):
    pass
