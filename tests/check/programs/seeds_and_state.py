"""Seeds, caches and state as training scripts have them: through options, classes and helpers."""

import argparse
import functools
import json
import os
import random
import time

import numpy as np
import torch
import torch.nn as nn
import torch.utils.data
from torch.utils.data import DataLoader, Dataset
from tqdm import tqdm

HISTORY = []


def seed_everything(seed: int = 42) -> None:
    random.seed(seed)
    os.environ["PYTHONHASHSEED"] = str(seed)
    np.random.seed(seed)
    torch.manual_seed(seed)


class Sentences(Dataset):
    def __init__(self, root, split, tokenizer, cfg):
        with open(os.path.join(root, f"{split}.json"), encoding="utf-8") as handle:
            data = json.load(handle)
        self.examples = data["examples"]  # finds: AF203
        self.tokenizer = tokenizer
        self.cfg = cfg
        self.cache = dict()
        self.failed = []
        self.max_length = cfg.max_length

    def __len__(self):
        return len(self.examples)

    def _encode(self, index):
        key = self.examples[index]["id"]
        if key in self.cache:
            return self.cache[key]
        encoded = torch.as_tensor(self.tokenizer(self.examples[index]["text"]))
        self.cache[key] = encoded  # finds: AF204
        return encoded

    def __getitem__(self, index):
        np.random.seed(self.cfg.seed)  # finds: AF303
        ids = self._encode(index)
        if len(ids) > self.max_length:
            self.failed.append(index)
            HISTORY.append(index)  # finds: AF210
        start = np.random.randint(0, 8)
        return ids[start : start + self.max_length]


def worker_init(worker_id, seed=0):
    seed_everything(seed)  # finds: AF302


def clocked(worker_id):
    random.seed(int(time.time()))  # finds: AF304


def too_large(worker_id):
    seed = torch.initial_seed()
    random.seed(seed)
    np.random.seed(seed)  # finds: AF305


def fine(worker_id):
    seed = torch.initial_seed() % (2**31)
    random.seed(seed + worker_id)
    np.random.seed(seed)


class Runner:
    def __init__(self, args, tokenizer):
        self.args = args
        self.train_set = Sentences(args.root, "train", tokenizer, args)
        self.model = nn.Linear(8, 8)
        self.device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
        self.train_loader = torch.utils.data.DataLoader(
            self.train_set,
            batch_size=args.batch_size,
            shuffle=True,
            num_workers=args.num_workers,
            persistent_workers=args.num_workers > 0,
            worker_init_fn=functools.partial(worker_init, seed=args.seed),
        )
        self.plain_loader = DataLoader(
            self.train_set, args.batch_size, num_workers=2, worker_init_fn=clocked
        )
        self.other_loader = DataLoader(self.train_set, num_workers=2, worker_init_fn=too_large)
        self.good_loader = DataLoader(self.train_set, num_workers=2, worker_init_fn=fine)

    def train(self):
        lengths = []
        for epoch in range(self.args.epochs):
            for batch in tqdm(self.train_loader, desc=f"epoch {epoch}"):
                batch = batch.to(self.device)
                self.model(batch).sum().backward()
                lengths.append(batch)
            print(len(self.train_set.failed), len(HISTORY), len(lengths))  # finds: AF208

    def collect(self):
        kept = []
        for batch in self.plain_loader:
            kept.append(batch)  # finds: AF206
            self.train_set.max_length = len(kept)  # finds: AF209
        return torch.cat(kept)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--root")
    parser.add_argument("--num-workers", type=int, default=8)
    args = parser.parse_args()
    seed_everything(args.seed)
    Runner(args, str.split).train()


if __name__ == "__main__":
    main()
