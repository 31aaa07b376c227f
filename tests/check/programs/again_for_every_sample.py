"""What is read or built for each sample, and what only looks like it."""

import functools
import json
from pathlib import Path

import numpy as np
import torch
from torch.utils.data import DataLoader, Dataset
from transformers import AutoTokenizer


@functools.lru_cache(maxsize=1)
def table(path):
    return np.load(path)


class Rows(Dataset):
    def __init__(self, root, split):
        self.root = Path(root)
        self.index_file = self.root / f"{split}.json"
        self.names = np.array(json.loads(self.index_file.read_text()))
        self._tokenizer = None

    def __len__(self):
        return len(self.names)

    @property
    def tokenizer(self):
        if self._tokenizer is None:
            self._tokenizer = AutoTokenizer.from_pretrained("gpt2")
        return self._tokenizer

    @functools.cached_property
    def means(self):
        return np.load(self.root / "means.npy")

    def __getitem__(self, index):
        name = self.names[index]
        sample = torch.load(self.root / name)
        weights = torch.load(self.root / "weights.pt")  # finds: AF506
        label = self.label(name)
        row = table(self.root / "table.npy")[index]
        return self.tokenizer(sample), weights[index] - self.means, label, row

    def label(self, name):
        with self.index_file.open() as file:
            line = file.readline()
        labels = json.load(open(self.root / "labels.json"))  # finds: AF506
        return labels[name], line


def load(root):
    return DataLoader(Rows(root, "train"), num_workers=2)
