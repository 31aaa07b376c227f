"""A regular expression that tries everything, in C, in an iterable dataset of one worker.

expects: endless-sample
"""

import re
from collections.abc import Iterator

from torch.utils.data import DataLoader, IterableDataset


class Lines(IterableDataset[bool]):
    def __iter__(self) -> Iterator[bool]:
        for number in range(100):
            line = "a" * (44 if number == 7 else 4) + "!"
            yield re.match(r"^(a+)+$", line) is None


if __name__ == "__main__":
    print("begins", flush=True)
    loader = DataLoader(Lines(), batch_size=None, num_workers=1, multiprocessing_context="spawn")
    for _ in loader:
        pass
