"""A file, database or socket opened when the module is imported, and used by all workers."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from ..source.definitions import Dataset
from ..source.view import View
from ..source.worker_code import WorkerCode
from .base import LIKELY, POSSIBLE, WRONG_DATA, Hit, Rule
from .handles import HANDLES

_WRITES = frozenset("wax")


def find(view: View) -> Iterator[Hit]:
    for code in view.worker_code:
        if not code.only_ours:  # antifreeze opens files anew in each worker, and names the rest
            yield from _of_the_module(view, code)
    for dataset in view.datasets:
        if not dataset.only_ours and (dataset.workers is None or dataset.workers.any):
            yield from _of_the_class(view, dataset)


def _of_the_module(view: View, code: WorkerCode) -> Iterator[Hit]:
    top = view.module.scopes.top
    for node in code.function.nodes():
        if not isinstance(node, ast.Name) or not isinstance(node.ctx, ast.Load):
            continue
        found = view.module.scopes.lookup(node.id, node)
        if found is None or found[0] is not top or len(found[1]) != 1:
            continue  # of a function; or opened anew somewhere
        value = found[1][0].value
        maker = _maker(value, view) if value is not None else None
        if maker is not None:
            yield Hit(
                found[1][0].node,
                f"`{node.id}` ({maker}) is opened once and used by `{code.function.name}` in every"
                f" worker: {HANDLES[maker]}",
                LIKELY if code.workers is not None else POSSIBLE,
            )


def _of_the_class(view: View, dataset: Dataset) -> Iterator[Hit]:
    for attribute, places in dataset.attributes.items():
        value = places[0].value
        if len(places) != 1 or places[0].method is not None or value is None:
            continue
        maker = _maker(value, view)
        if maker is not None and dataset.uses(attribute):
            yield Hit(
                view.here(places[0].node, dataset.node),
                f"`{attribute}` ({maker}) is opened in the body of `{dataset.name}` and used in"
                f" every worker: {HANDLES[maker]}",
                LIKELY if dataset.workers is not None else POSSIBLE,
            )


def _maker(value: ast.expr, view: View) -> str | None:
    """Give who opened a handle for reading."""
    if not isinstance(value, ast.Call):
        return None
    name = view.resolve(value.func)
    if name not in HANDLES or name == "numpy.load":
        return None
    mode = view.call_arguments(value, ("file", "mode"))["mode"].value
    writes = isinstance(mode, str) and not _WRITES.isdisjoint(mode)
    return None if writes and name.endswith("open") else name


RULE = Rule(
    code="AF202",
    name="handle-at-module-level",
    severity=WRONG_DATA,
    confidence=LIKELY,
    title="A handle opened at module level is shared by all workers",
    what="""
    A file, archive, HDF5 file, database or socket that is opened at module level, or in the body of
    a class, and used by code that runs in workers.
    """,
    why="""
    As with a handle opened in `__init__` (AF201): forked workers share the descriptor and its
    position, so that one worker's `seek` moves the other's `read`; databases and sockets mix up
    their answers. Measured with torch 2.13 and a plain file: 3600 of 4000 samples had the bytes of
    another one. Under spawn and forkserver every worker imports the module, and opens it once more.
    """,
    instead="""
    Open it in the worker, at first use, and keep it in an attribute; or `FILE =
    antifreeze.per_worker(lambda: h5py.File(path))`, which does just that.
    """,
    not_flagged="""
    Names that a function gives a new handle with `global`. Files opened for writing. Memory maps.
    Loaders without workers, or antifreeze's, which opens files anew in each worker.
    """,
    bad="""
import h5py
from torch.utils.data import DataLoader, Dataset

FILE = h5py.File("pictures.h5", "r")


class Pictures(Dataset):
    def __len__(self):
        return len(FILE["x"])

    def __getitem__(self, index):
        return FILE["x"][index]


if __name__ == "__main__":
    for batch in DataLoader(Pictures(), num_workers=4):
        print(batch.shape)
""",
    good="""
import h5py
from torch.utils.data import DataLoader, Dataset

PATH = "pictures.h5"


class Pictures(Dataset):
    def __init__(self):
        self.file = None
        with h5py.File(PATH, "r") as file:
            self.length = len(file["x"])

    def __len__(self):
        return self.length

    def __getitem__(self, index):
        if self.file is None:
            self.file = h5py.File(PATH, "r")
        return self.file["x"][index]


if __name__ == "__main__":
    for batch in DataLoader(Pictures(), num_workers=4):
        print(batch.shape)
""",
    also_bad=(
        """
import argparse
import sqlite3 as sql

import torch
from torch.utils.data import DataLoader, Dataset

connection = sql.connect("names.db")
cursor = connection.cursor()


def row(index):
    return connection.execute("select x from t where id = ?", (index,)).fetchone()


class Rows(Dataset):
    def __init__(self, length):
        self.length = length

    def __len__(self):
        return self.length

    def __getitem__(self, index):
        return torch.tensor(row(index))


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--workers", type=int, default=4)
    args = parser.parse_args()
    loader = DataLoader(Rows(1000), batch_size=32, num_workers=args.workers)
    for batch in loader:
        print(batch.sum())


if __name__ == "__main__":
    main()
""",
        """
from zipfile import ZipFile

from torch.utils.data import DataLoader, Dataset


class Zipped(Dataset):
    archive = ZipFile("pictures.zip")

    def __init__(self, names):
        self.names = names

    def __len__(self):
        return len(self.names)

    def __getitem__(self, index):
        return self.archive.read(self.names[index])


def load(names):
    return DataLoader(Zipped(names), batch_size=8, num_workers=2)
""",
    ),
    also_good=(
        """
import lmdb
from torch.utils.data import DataLoader, Dataset

_env = None


def env():
    global _env
    if _env is None:
        _env = lmdb.open("data.lmdb", readonly=True, lock=False)
    return _env


class Records(Dataset):
    def __len__(self):
        return 1000

    def __getitem__(self, index):
        with env().begin() as transaction:
            return transaction.get(str(index).encode())


def load():
    return DataLoader(Records(), batch_size=8, num_workers=2)
""",
        """
import json

from torch.utils.data import DataLoader, Dataset

FILE = open("names.json")
NAMES = json.load(FILE)


class Names(Dataset):
    def __init__(self, rows):
        self.rows = rows

    def __len__(self):
        return len(self.rows)

    def __getitem__(self, index):
        return NAMES[self.rows[index]]


def load(rows):
    return DataLoader(Names(rows), batch_size=8, num_workers=2)
""",
    ),
    find=find,
    follows=True,
)
