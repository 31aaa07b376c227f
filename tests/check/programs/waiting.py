"""Loading that waits, retries, swallows and exits, through helpers, bases and configuration."""

import multiprocessing as mp
import random
import sys
import time
from urllib.request import urlopen

import torch.utils.data as data


class Base(data.Dataset):
    def __init__(self, cfg):
        self.cfg = cfg
        self.guard = cfg.lock or mp.get_context("fork").RLock()
        self.counted = mp.Lock()
        self.seen = 0

    def __len__(self):
        return self.cfg.length


class Locked(Base):
    def __getitem__(self, index):
        with self.guard:  # finds: AF402
            sample = self.read(index)
        with self.counted:
            self.seen += 1
        return sample

    def read(self, index):
        with open(f"{self.cfg.root}/{index}") as file:
            return file.read()


class Remote(Base):
    def __getitem__(self, index):
        for attempt in range(3):
            try:
                return fetch(f"{self.cfg.root}/{index}")
            except OSError:
                time.sleep(attempt)
        sys.exit(f"sample {index}")  # finds: AF412


def fetch(url):
    with urlopen(url, timeout=10) as answer:
        head = answer.read()
    return head, urlopen(url + ".json").read()  # finds: AF404


class Stubborn(Base):
    def __getitem__(self, index):
        try:
            return self.read(index)
        except Exception:  # finds: AF405
            return self[random.randrange(len(self))]

    def read(self, index):
        while True:  # finds: AF406
            try:
                with open(f"{self.cfg.root}/{index}") as file:
                    return file.read()
            except OSError as error:
                print(error)


def loaders(cfg):
    for kind in (Locked, Remote, Stubborn):
        print(kind)
    yield data.DataLoader(Locked(cfg), cfg.batch, num_workers=cfg.workers)
    yield data.DataLoader(Remote(cfg), cfg.batch, num_workers=4)
    yield data.DataLoader(Stubborn(cfg), cfg.batch, num_workers=4)
