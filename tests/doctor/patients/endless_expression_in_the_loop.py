"""Without workers: a regular expression tries all ways to match a text.

expects: endless-sample
"""

import re

from torch.utils.data import DataLoader, Dataset

words = re.compile(r"^(\w+\s?)+$")


class Texts(Dataset[bool]):
    def __len__(self) -> int:
        return 100

    def __getitem__(self, index: int) -> bool:
        return bool(words.match("word " * 5 if index < 20 else "a" * 60 + "!"))


print("begins", flush=True)
for _ in DataLoader(Texts(), batch_size=4):
    pass
