"""A file, database or socket opened once and used by all workers."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from ..source.definitions import Dataset
from ..source.view import View
from ..source.wording import text_of
from .base import LIKELY, POSSIBLE, WRONG_DATA, Hit, Rule
from .handles import HANDLES, Opened, opened


def find(view: View) -> Iterator[Hit]:
    for dataset in view.datasets:
        if dataset.only_ours and dataset.workers is not None:
            continue  # antifreeze opens files anew in each worker, and names what it cannot
        if dataset.workers is not None and not dataset.workers.any:
            continue
        if view.sent_by(dataset):
            continue  # such handles cannot be sent at all: AF103
        told: set[ast.AST] = set()
        for attribute, value, place in _kept(dataset):
            if not _is_used(attribute, dataset):
                continue
            found = opened(value, view) or _archive(attribute, value, dataset, view)
            if found is None or found[1] in told:
                continue
            told.add(found[1])
            direct = (
                isinstance(value, ast.Name)
                or any(each is found[1] for each in ast.walk(place))
                or (isinstance(value, ast.Call) and view.function_of(value.func) is not None)
            )
            where = place if direct or not view.module.holds(found[1]) else found[1]
            yield _hit(view, dataset, attribute, found, where)


def _kept(dataset: Dataset) -> Iterator[tuple[str, ast.expr, ast.stmt | ast.Call]]:
    """Give what `__init__` keeps: assigned to an attribute, or put into one."""
    prepared = {function.node for function in dataset.preparing}
    for attribute, places in dataset.attributes.items():
        for place in places:
            if place.value is not None and place.method in prepared:
                yield attribute, place.value, place.node
    for function in dataset.preparing:
        for node in function.nodes():
            match node:
                case ast.Call(
                    func=ast.Attribute(
                        attr="append" | "add", value=ast.Attribute(attr=name, value=owner)
                    ),
                    args=[value],
                ) if function.module.class_of_self(owner):
                    yield name, value, node
                case ast.Assign(
                    targets=[ast.Subscript(value=ast.Attribute(attr=name, value=owner))],
                    value=value,
                ) if function.module.class_of_self(owner):
                    yield name, value, node
                case _:
                    pass


def _is_used(attribute: str, dataset: Dataset) -> bool:
    """Say whether workers use what the main process opened: nothing opens it anew in them."""
    return bool(dataset.uses(attribute)) and not dataset.sets_anew(attribute)


def _archive(attribute: str, value: ast.expr, dataset: Dataset, view: View) -> Opened | None:
    """Give `numpy.load` if what it gives is asked for its `files`, as only an archive is."""
    match value:
        case ast.Call() if view.resolve(value.func) == "numpy.load":
            asked = any(
                isinstance(node, ast.Attribute)
                and node.attr == "files"
                and text_of(node.value) == f"self.{attribute}"
                for function in (*dataset.preparing, *dataset.loading)
                for node in function.nodes()
            )
            return ("numpy.load", value) if asked else None
        case _:
            return None


def _hit(
    view: View, dataset: Dataset, attribute: str, found: Opened, place: ast.stmt | ast.Call
) -> Hit:
    maker = found[0]
    around = view.function_around(place)
    return Hit(
        view.here(place, dataset.node),
        f"`self.{attribute}` is opened in `{around.name if around else dataset.name}` ({maker})"
        f" and used by `{'__iter__' if dataset.method('__iter__') else '__getitem__'}` in every"
        f" worker: {HANDLES[maker]}",
        LIKELY if dataset.workers is not None else POSSIBLE,
    )


RULE = Rule(
    code="AF201",
    name="handle-opened-before-workers",
    severity=WRONG_DATA,
    confidence=LIKELY,
    title="A handle opened in `__init__` is shared by all workers",
    what="""
    A dataset whose `__init__` opens a file, archive, HDF5 file, database or socket, keeps it (or a
    part of it, a list of them, or an object that opens it) in an attribute, and uses it while
    loading samples in worker processes.
    """,
    why="""
    Workers are forked: they share the descriptor, and with it the position in the file. One
    worker's `seek` moves the other's `read`. Measured with torch 2.13 and a plain file: 3600 of
    4000 samples had the bytes of another one, without any error. Archives fail with `Bad CRC-32`
    ([boltzgen#40](https://github.com/HannesStark/boltzgen/issues/40)), LMDB with `MDB_BAD_RSLOT`
    ([vision#689](https://github.com/pytorch/vision/issues/689)), and from a socket workers read
    each other's answers. Under spawn and forkserver most handles cannot be sent at all (AF103).
    """,
    instead="""
    Keep the path, and open the file in the worker, at first use; or `self.file =
    antifreeze.per_worker(lambda: h5py.File(path))`, which does just that.
    """,
    not_flagged="""
    A file that `__getitem__` itself opens: every `open` has a position of its own. A handle that
    is opened in `__init__` only to be read and closed there. Datasets whose loaders have no
    workers, or are antifreeze's, which opens files anew in each worker.
    """,
    bad="""
import h5py
from torch.utils.data import DataLoader, Dataset


class Pictures(Dataset):
    def __init__(self, path):
        self.file = h5py.File(path, "r")

    def __len__(self):
        return len(self.file["x"])

    def __getitem__(self, index):
        return self.file["x"][index]


if __name__ == "__main__":
    for batch in DataLoader(Pictures("pictures.h5"), num_workers=4):
        print(batch.shape)
""",
    good="""
import h5py
from torch.utils.data import DataLoader, Dataset


class Pictures(Dataset):
    def __init__(self, path):
        self.path = path
        self.file = None
        with h5py.File(path, "r") as file:
            self.length = len(file["x"])

    def __len__(self):
        return self.length

    def __getitem__(self, index):
        if self.file is None:
            self.file = h5py.File(self.path, "r")
        return self.file["x"][index]


if __name__ == "__main__":
    for batch in DataLoader(Pictures("pictures.h5"), num_workers=4):
        print(batch.shape)
""",
    also_bad=(
        """
import os

import h5py
import numpy as np
from torch.utils.data import DataLoader, Dataset


class Points(Dataset):
    def __init__(self, path, root):
        try:
            file = h5py.File(path, "r")
            self.points = file["points"]
        except KeyError:
            file.close()
            raise
        self.labels = np.load(os.path.join(root, "labels.npz"))

    def __len__(self):
        return len(self.points)

    def __getitem__(self, index):
        return self.points[index], self.labels["x"][index]


def load(path, root):
    return DataLoader(Points(path, root), batch_size=32, num_workers=8)
""",
        """
import pickle

import lightning.pytorch as pl
import lmdb
from torch.utils.data import DataLoader, Dataset


class Molecules(Dataset):
    def __init__(self, path):
        env = lmdb.open(path, readonly=True, lock=False)
        self.transaction = env.begin()
        self.count = env.stat()["entries"]

    def __len__(self):
        return self.count

    def __getitem__(self, index):
        return pickle.loads(self.transaction.get(f"{index}".encode()))


class Data(pl.LightningDataModule):
    def __init__(self, root, workers):
        super().__init__()
        self.root, self.workers = root, workers

    def setup(self, stage=None):
        self.parts = {each: Molecules(f"{self.root}/{each}") for each in ("train", "val")}

    def train_dataloader(self):
        return DataLoader(self.parts["train"], batch_size=8, num_workers=self.workers)
""",
        """
import h5py
import torch.utils.data as data


class Points(data.Dataset):
    def __init__(self, path, split):
        self.points = h5py.File(path, "r")[split]["points"]

    def __len__(self):
        return self.points.shape[0]

    def __getitem__(self, index):
        return self.points[index]


def load(path):
    return data.DataLoader(Points(path, "train"), batch_size=32, num_workers=8)
""",
        """
import psycopg2
from torch.utils.data import DataLoader, Dataset


class Events(Dataset):
    def __init__(self, dsn, count):
        self.connection = psycopg2.connect(dsn)
        self.cursor = self.connection.cursor()
        self.count = count

    def __len__(self):
        return self.count

    def __getitem__(self, index):
        self.cursor.execute("SELECT x FROM events WHERE id = %s", (index,))
        return self.cursor.fetchone()[0]


def load(dsn):
    return DataLoader(Events(dsn, 1000), batch_size=32, num_workers=4)
""",
        """
import h5py
from torch.utils.data import DataLoader, Dataset


class Shards(Dataset):
    def __init__(self, paths):
        self.shards = [h5py.File(each, "r") for each in paths]
        self.sizes = [len(each["x"]) for each in self.shards]

    def __len__(self):
        return sum(self.sizes)

    def __getitem__(self, index):
        for shard, size in zip(self.shards, self.sizes):
            if index < size:
                return shard["x"][index]
            index -= size
        raise IndexError(index)


def load(paths):
    return DataLoader(Shards(paths), batch_size=32, num_workers=4)
""",
        """
import json

from torch.utils.data import DataLoader, Dataset


class Reader:
    def __init__(self, path, offsets):
        self.file = open(path, "rb")
        self.offsets = offsets

    def row(self, index):
        self.file.seek(self.offsets[index])
        return json.loads(self.file.readline())


class Rows(Dataset):
    def __init__(self, path, offsets):
        self.reader = Reader(path, offsets)
        self.count = len(offsets)

    def __len__(self):
        return self.count

    def __getitem__(self, index):
        return self.reader.row(index)["x"]


def load(path, offsets):
    return DataLoader(Rows(path, offsets), batch_size=32, num_workers=4)
""",
        """
import numpy as np
from torch.utils.data import DataLoader, Dataset


class Frames(Dataset):
    def __init__(self, path):
        self.archive = np.load(path)
        self.names = sorted(self.archive.files)

    def __len__(self):
        return len(self.names)

    def __getitem__(self, index):
        return self.archive[self.names[index]]


def load(path):
    return DataLoader(Frames(path), batch_size=32, num_workers=4)
""",
    ),
    also_good=(
        """
import os

import h5py
import numpy as np
from torch.utils.data import DataLoader, Dataset


class Points(Dataset):
    def __init__(self, path, npz_root, mask):
        f = h5py.File(path, "r")
        self.scale = f.attrs["scale"]
        self.shape = f["points"].shape
        points = f["points"]
        self.points = points[mask]
        self.labels = f["labels"][mask]
        f.close()
        self.extra = np.load(os.path.join(npz_root, "extra.npy"))
        self.count = self.read(path)

    def read(self, path):
        file = h5py.File(path, "r")
        try:
            self.group = file["group"]
            return len(self.group)
        finally:
            file.close()

    def __len__(self):
        return self.count

    def __getitem__(self, index):
        return self.points[index] * self.scale, self.labels[index], self.shape, self.extra[index]


def load(path, root, mask):
    return DataLoader(Points(path, root, mask), batch_size=32, num_workers=8)
""",
        """
import h5py
import numpy as np
from torch.utils.data import DataLoader, Dataset


class Points(Dataset):
    def __init__(self, path):
        with h5py.File(path, "r") as file:
            self.points = file["points"][:]
            self.names = np.array(file["names"])
        archive = np.load("labels.npz")
        self.labels = archive["labels"]

    def __len__(self):
        return len(self.points)

    def __getitem__(self, index):
        return self.points[index], self.names[index], self.labels[index]


def load(path):
    return DataLoader(Points(path), batch_size=32, num_workers=8)
""",
        """
import h5py
from torch.utils.data import DataLoader, Dataset, get_worker_info


class Points(Dataset):
    def __init__(self, path):
        self.path = path
        self.file = h5py.File(path, "r")

    def __len__(self):
        return len(self.file["points"])

    def __getitem__(self, index):
        return self.file["points"][index]


def open_again(worker_id):
    dataset = get_worker_info().dataset
    dataset.file = h5py.File(dataset.path, "r")


def load(path):
    return DataLoader(Points(path), batch_size=32, num_workers=8, worker_init_fn=open_again)
""",
        """
import h5py
from torch.utils.data import DataLoader, Dataset


class Reader:
    def __init__(self, path):
        self.path = path
        self.file = None

    def row(self, index):
        if self.file is None:
            self.file = h5py.File(self.path, "r")
        return self.file["x"][index]


class Rows(Dataset):
    def __init__(self, path, count):
        self.reader = Reader(path)
        self.count = count

    def __len__(self):
        return self.count

    def __getitem__(self, index):
        return self.reader.row(index)


def load(path):
    return DataLoader(Rows(path, 1000), batch_size=32, num_workers=4)
""",
    ),
    find=find,
)
