"""The same file, read as a whole for each sample."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from ..source.definitions import DatasetKind, Function
from ..source.view import View
from ..source.wording import text_of
from .base import LIKELY, SLOW, Hit, Rule
from .unvarying import Samples

# Functions that read a whole file, with the name of the argument that says which.
READERS = {
    "pandas.read_csv": "filepath_or_buffer",
    "pandas.read_table": "filepath_or_buffer",
    "pandas.read_parquet": "path",
    "pandas.read_json": "path_or_buf",
    "pandas.read_excel": "io",
    "pandas.read_pickle": "filepath_or_buffer",
    "pandas.read_feather": "path",
    "pandas.read_hdf": "path_or_buf",
    "polars.read_csv": "source",
    "polars.read_parquet": "source",
    "numpy.load": "file",
    "numpy.loadtxt": "fname",
    "numpy.genfromtxt": "fname",
    "scipy.io.loadmat": "file_name",
    "torch.load": "f",
    "json.load": "fp",
    "pickle.load": "file",
    "joblib.load": "filename",
    "yaml.safe_load": "stream",
    "pyarrow.parquet.read_table": "source",
}
_OPENERS = frozenset({"open", "gzip.open", "bz2.open", "io.open"})
# Arguments with which less than the whole file is read, or nothing is copied.
_IN_PART = frozenset({"mmap_mode", "mmap", "skiprows", "nrows", "chunksize", "filters", "usecols"})


def find(view: View) -> Iterator[Hit]:
    for dataset in view.datasets:
        if dataset.kind is not DatasetKind.MAP:
            continue
        samples = Samples(dataset, view)
        for function in dataset.loading:
            if not view.module.holds(function.node):
                continue
            for node, file, what in _reads(function, view):
                path = _opened(file, view)
                if samples.same(path, function) and not samples.once(node, function):
                    yield Hit(
                        node,
                        f"{what} in `{function.name}` reads the whole of `{text_of(path)}`"
                        " again for every sample",
                    )


def _reads(function: Function, view: View) -> Iterator[tuple[ast.expr, ast.expr, str]]:
    """Give what reads a whole file: the node, the file, and how it is called."""
    for node in function.nodes():
        if isinstance(node, ast.Call):
            name = view.resolve(node.func)
            if name not in READERS:
                continue
            given = view.call_arguments(node, (READERS[name],))
            if given[READERS[name]].node is None or any(e in given for e in _IN_PART):
                continue
            path = given[READERS[name]].node
            assert path is not None
            yield node, path, f"`{name}`"
        elif isinstance(node, ast.Subscript) and _is_everything(node.slice):
            match node.value:
                case ast.Subscript(value=ast.Name() as file, slice=ast.Constant()):
                    made = view.value(file)
                    if view.type_of(file) == "h5py.File" and isinstance(made, ast.Call):
                        yield from ((node, each, f"`{text_of(node)}`") for each in made.args[:1])
                case _:
                    pass


def _is_everything(node: ast.expr) -> bool:
    match node:
        case ast.Slice(lower=None, upper=None, step=None) | ast.Tuple(elts=[]):
            return True
        case ast.Constant(value=value):
            return value is ...
        case _:
            return False


def _opened(file: ast.expr, view: View) -> ast.expr:
    """Give the path of what is read, if it was opened here: `json.load(open(path))`."""
    made = view.value(file) if isinstance(file, ast.Name) else file
    if isinstance(made, ast.Call) and view.resolve(made.func) in _OPENERS and made.args:
        return made.args[0]
    return file


RULE = Rule(
    code="AF506",
    name="whole-file-for-every-sample",
    severity=SLOW,
    confidence=LIKELY,
    title="The same file is read as a whole for every sample",
    what="""
    `__getitem__`, or what it calls, reads all of a file (`pandas.read_csv`, `numpy.load`,
    `json.load`, `torch.load`, `h5py` with `[:]`) whose path does not depend on the index.
    """,
    why="""
    The cost of a sample is that of the whole file. An epoch of n samples reads it n times: a table
    of 100 MB and 100,000 rows is ten terabytes an epoch. More workers only divide that.
    """,
    instead="""
    Read it once, in `__init__`, and keep it as an array or a table: forked workers share its
    memory. If it is too large: `numpy.load(path, mmap_mode="r")`, an index
    into an HDF5 file (`file["x"][index]`), or one file a sample. Or keep it at first use:
    `if self.table is None`.
    """,
    not_flagged="""
    Files whose path depends on the sample. Opening a file for each sample: what is read of it
    counts. What is read once and kept. `mmap_mode`, `nrows` and the like.
    """,
    bad="""
import pandas
from torch.utils.data import DataLoader, Dataset


class Rows(Dataset):
    def __init__(self, path, length):
        self.path = path
        self.length = length

    def __len__(self):
        return self.length

    def __getitem__(self, index):
        table = pandas.read_csv(self.path)
        return table.iloc[index].to_numpy()


def load(path):
    return DataLoader(Rows(path, 1000), batch_size=8, num_workers=4)
""",
    good="""
import pandas
from torch.utils.data import DataLoader, Dataset


class Rows(Dataset):
    def __init__(self, path):
        self.table = pandas.read_csv(path).to_numpy()

    def __len__(self):
        return len(self.table)

    def __getitem__(self, index):
        return self.table[index]


def load(path):
    return DataLoader(Rows(path), batch_size=8, num_workers=4)
""",
    also_bad=(
        """
import os

import numpy as np
import torch
from torch.utils.data import Dataset

LABELS = "labels.npy"


class Slices(Dataset):
    def __init__(self, cfg):
        self.root = cfg.root
        self.length = cfg.length

    def __len__(self):
        return self.length

    def __getitem__(self, idx):
        volume = np.load(os.path.join(self.root, f"slice_{idx}.npy"))
        return torch.from_numpy(volume), self.label(idx)

    def label(self, idx):
        labels = np.load(os.path.join(self.root, LABELS))
        return labels[idx]
""",
        """
import json

import torch.utils.data as data


class Captions(data.Dataset):
    def __init__(self, annotation_file, count):
        self.annotation_file = annotation_file
        self.count = count

    def __len__(self):
        return self.count

    def __getitem__(self, i):
        with open(self.annotation_file) as f:
            captions = json.load(f)
        return captions[i]["caption"]
""",
        """
import h5py
from torch.utils.data import Dataset


class Volumes(Dataset):
    def __init__(self, path, length):
        self.path = path
        self.length = length

    def __len__(self):
        return self.length

    def __getitem__(self, index):
        with h5py.File(self.path, "r") as file:
            return file["x"][:][index]
""",
    ),
    also_good=(
        """
import json

import numpy as np
from torch.utils.data import Dataset


class Files(Dataset):
    def __init__(self, folder, names):
        self.folder = folder
        self.names = names
        self.table = None

    def __len__(self):
        return len(self.names)

    def __getitem__(self, index):
        if self.table is None:
            with open(f"{self.folder}/table.json") as file:
                self.table = json.load(file)
        name = self.names[index]
        x = np.load(f"{self.folder}/{name}.npy")
        with open(f"{self.folder}/{name}.json") as file:
            return x, self.table[name], json.load(file)
""",
        """
import h5py
import numpy as np
from torch.utils.data import Dataset


class Volumes(Dataset):
    def __init__(self, path, length):
        self.path = path
        self.length = length

    def __len__(self):
        return self.length

    def __getitem__(self, index):
        array = np.load(self.path, mmap_mode="r")
        with h5py.File("other.h5", "r") as file:
            return array[index], file["x"][index], file[str(index)][:]
""",
        """
from torch.utils.data import Dataset


class Lines(Dataset):
    def __init__(self, path, length):
        self.path = path
        self.length = length

    def __len__(self):
        return self.length

    def __getitem__(self, index):
        with open(self.path) as file:
            for number, line in enumerate(file):
                if number == index:
                    return line
        raise IndexError(index)
""",
    ),
    find=find,
)
