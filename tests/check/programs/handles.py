"""Handles of several kinds, through helpers, bases and lazily."""

import sqlite3
import zipfile

import lmdb
from torch.utils.data import DataLoader, Dataset


class Base(Dataset):
    def __init__(self, path):
        self.path = path
        self.connect()

    def connect(self):
        self.base = sqlite3.connect(self.path)  # finds: AF201

    def __len__(self):
        return 10


class Rows(Base):
    def __getitem__(self, index):
        return self.read(index)

    def read(self, index):
        return self.base.execute("select ?", (index,)).fetchone()


class Zipped(Dataset):
    def __init__(self, path):
        archive = zipfile.ZipFile(path)
        self.archive = archive  # finds: AF201

    def __len__(self):
        return 10

    def __getitem__(self, index):
        return self.archive.read(str(index))


class Lazy(Dataset):
    def __init__(self, path):
        self.path = path
        self.env = None

    def __len__(self):
        return 10

    def _environment(self):
        if self.env is None:
            self.env = lmdb.open(self.path)
        return self.env

    def __getitem__(self, index):
        return self._environment().begin().get(str(index).encode())


class OnlyCounted(Dataset):
    def __init__(self, path):
        self.file = open(path)
        self.count = len(self.file.readlines())

    def __len__(self):
        return self.count

    def __getitem__(self, index):
        return index


def loaders(path, workers):
    yield DataLoader(Rows(path), num_workers=2)
    yield DataLoader(Zipped(path), num_workers=workers)
    yield DataLoader(Lazy(path), num_workers=2)
    yield DataLoader(OnlyCounted(path), num_workers=2)
