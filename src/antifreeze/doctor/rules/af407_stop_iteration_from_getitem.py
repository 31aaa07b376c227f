"""StopIteration from a sample: the loop takes it for the end of the data."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from ..source.definitions import DatasetKind, Function
from ..source.view import View
from ..source.wording import text_of
from .base import LIKELY, POSSIBLE, WRONG_DATA, Hit, Rule
from .catching import catches, is_broad

_ENDS = (
    "the loop over the loader takes it for the end of the data and stops early, without an error"
)


def find(view: View) -> Iterator[Hit]:
    for dataset in view.datasets:
        if dataset.kind is not DatasetKind.MAP or dataset.only_ours:
            continue
        for function in dataset.loading:
            if not function.is_generator and view.module.holds(function.node):
                yield from _hits(function, view)


def _hits(function: Function, view: View) -> Iterator[Hit]:
    for node in function.nodes():
        if isinstance(node, ast.Raise) and _raises(node):
            if not _caught(node, view):
                sure = not _beyond_the_end(node, view)
                yield Hit(
                    node,
                    f"`{function.name}` raises StopIteration: {_ENDS}",
                    LIKELY if sure else POSSIBLE,
                )
        elif isinstance(node, ast.Call) and len(node.args) == 1:
            if view.resolve(node.func) != "next" or _caught(node, view):
                continue
            runs_out = _runs_out(node.args[0], view)
            if runs_out is not None:
                yield Hit(
                    node,
                    f"`next(...)` in `{function.name}` raises StopIteration when nothing is left:"
                    f" {_ENDS}",
                    LIKELY if runs_out else POSSIBLE,
                )


def _raises(node: ast.Raise) -> bool:
    raised = node.exc.func if isinstance(node.exc, ast.Call) else node.exc
    return isinstance(raised, ast.Name) and raised.id == "StopIteration"


def _runs_out(node: ast.expr, view: View) -> bool | None:
    """Say whether an iterator lives longer than the sample, and so ends some day; None: it is made
    on the spot, and has something in it as far as we can tell."""
    if isinstance(node, ast.GeneratorExp):
        return False if any(each.ifs for each in node.generators) else None
    if isinstance(node, ast.Attribute) and view.module.class_of_self(node.value) is not None:
        makers = {view.resolve(v.func) for v in view.origins(node) if isinstance(v, ast.Call)}
        return not any(each is not None and each.startswith("itertools.c") for each in makers)
    return None


def _caught(node: ast.AST, view: View) -> bool:
    """Say whether somebody in this function expects it: around it, or before it, where an iterator
    that ran out is made anew."""
    inner: ast.AST = node
    for each in view.module.ancestors(node):
        if isinstance(each, (ast.FunctionDef, ast.AsyncFunctionDef, ast.Lambda)):
            return False
        catching = (
            each.handlers if isinstance(each, (ast.Try, ast.TryStar)) and inner in each.body else []
        )
        if any(is_broad(h) or catches(h, "StopIteration") for h in catching):
            return True
        anew = isinstance(each, ast.ExceptHandler) and catches(each, "StopIteration")
        if anew and not isinstance(node, ast.Raise):
            return True
        inner = each
    return False


def _beyond_the_end(node: ast.AST, view: View) -> bool:
    """Say whether it is raised only for indices beyond the length, which no sampler gives."""
    for each in view.module.ancestors(node):
        if isinstance(each, ast.If):
            text = text_of(each.test)
            return "len(" in text or ">=" in text or "self.n" in text
        if isinstance(each, (ast.FunctionDef, ast.AsyncFunctionDef)):
            return False
    return False


RULE = Rule(
    code="AF407",
    name="stop-iteration-from-getitem",
    severity=WRONG_DATA,
    confidence=LIKELY,
    title="A sample that raises StopIteration ends the epoch without a word",
    what="""
    `raise StopIteration`, or `next(self.something)` without a default, in what `__getitem__` of a
    map-style dataset runs.
    """,
    why="""
    `for batch in loader` ends at a StopIteration, wherever it comes from. The rest of the epoch is
    left out, and nothing is said. Measured with torch 2.13: 20 of 64 samples arrived with workers,
    exit code 0; without workers it is the same.
    """,
    instead="""
    Raise `IndexError` for an index that does not exist, and another error for a sample that cannot
    be loaded. Give `next` a default, or catch StopIteration where it comes from. Data that can
    only be read one after the other are an `IterableDataset`.
    """,
    not_flagged="""
    `next(x, default)`, StopIteration that is caught, generators and `__iter__`, and
    `next(iter(x))` of something made on the spot. antifreeze's loader makes an error of it.
    """,
    bad="""
import csv

from torch.utils.data import DataLoader, Dataset


class Rows(Dataset):
    def __init__(self, path, count):
        with open(path) as file:
            self.rows = iter(list(csv.reader(file)))
        self.count = count

    def __len__(self):
        return self.count

    def __getitem__(self, index):
        return next(self.rows)


def load(path):
    return DataLoader(Rows(path, 1000), batch_size=8)
""",
    good="""
import csv

from torch.utils.data import DataLoader, Dataset


class Rows(Dataset):
    def __init__(self, path):
        with open(path) as file:
            self.rows = list(csv.reader(file))

    def __len__(self):
        return len(self.rows)

    def __getitem__(self, index):
        return self.rows[index]


def load(path):
    return DataLoader(Rows(path), batch_size=8)
""",
    also_bad=(
        """
import torch
from torch.utils.data import DataLoader, Dataset


class Windows(Dataset):
    def __init__(self, signal, width):
        self.signal = signal
        self.width = width

    def __len__(self):
        return 100

    def __getitem__(self, index):
        window = self.signal[index : index + self.width]
        if torch.isnan(window).any():
            raise StopIteration
        return window


def main(args):
    train = DataLoader(Windows(args.signal, 64), num_workers=args.workers)
    for batch in train:
        print(batch.shape)
""",
        """
from torch.utils import data


def frames(video):
    yield from video


class Video(data.Dataset):
    def __init__(self, video, length):
        self.stream = frames(video)
        self.length = length

    def __len__(self):
        return self.length

    def __getitem__(self, idx):
        frame = self.read_frame()
        return frame, idx

    def read_frame(self):
        return next(self.stream)


def get_loader(video):
    return data.DataLoader(Video(video, 300), batch_size=4)
""",
    ),
    also_good=(
        """
from torch.utils.data import DataLoader, Dataset


class Rows(Dataset):
    def __init__(self, rows):
        self.rows = rows
        self.spare = iter(rows)

    def __len__(self):
        return len(self.rows)

    def __getitem__(self, index):
        row = self.rows[index]
        if row is None:
            try:
                row = next(self.spare)
            except StopIteration:
                self.spare = iter(self.rows)
                row = next(self.spare)
        return row


def load(rows):
    return DataLoader(Rows(rows), batch_size=8)
""",
        """
from torch.utils.data import DataLoader, Dataset, IterableDataset


class Pairs(Dataset):
    def __init__(self, pairs):
        self.pairs = pairs

    def __len__(self):
        return len(self.pairs)

    def __getitem__(self, index):
        return next(iter(self.pairs[index].values()))


class Stream(IterableDataset):
    def __init__(self, source):
        self.source = source

    def __iter__(self):
        return self

    def __next__(self):
        row = self.source.read()
        if row is None:
            raise StopIteration
        return row


def load(pairs, source):
    return DataLoader(Pairs(pairs)), DataLoader(Stream(source))
""",
    ),
    find=find,
)
