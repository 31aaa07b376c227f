"""A loader without a word about workers."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from ..source import known
from ..source.view import View
from .base import LIKELY, SLOW, Hit, Rule

_IN_MEMORY = frozenset({"torch.utils.data.TensorDataset", "range", "list", "torch.arange"})


def find(view: View) -> Iterator[Hit]:
    for loader in view.loaders:
        if loader.kind != known.DATALOADER or not loader["num_workers"].absent:
            continue
        made = loader.dataset_expression
        if isinstance(made, (ast.List, ast.Tuple, ast.ListComp)):
            continue
        if isinstance(made, ast.Call) and view.resolve(made.func) in _IN_MEMORY:
            continue
        yield Hit(
            loader.node,
            "`num_workers` is not given: samples are loaded in the main process, while the model"
            " waits",
        )


RULE = Rule(
    code="AF901",
    name="workers-not-chosen",
    severity=SLOW,
    confidence=LIKELY,
    opinion=True,
    title="The number of workers is not given",
    what="A torch `DataLoader` without `num_workers`.",
    why="""
    The default is 0: samples are loaded one after the other in the main process, and the training
    step waits for each batch. It may be meant, but then say so: `num_workers=0`. TorchFix (TOR401)
    and Sonar (S6983) ask for the same.
    """,
    instead="""
    `num_workers=4` or so for data that is read or decoded; `num_workers=0`, written down, for data
    that is in memory already.
    """,
    not_flagged="""
    `TensorDataset`, lists and ranges, for which workers cost more than they bring. Loaders whose
    arguments come from a dict that we cannot see. Subclasses, and antifreeze's loader.
    """,
    bad="""
from torch.utils.data import DataLoader
from torchvision.datasets import ImageFolder


def load(folder):
    return DataLoader(ImageFolder(folder), batch_size=32)
""",
    good="""
from torch.utils.data import DataLoader
from torchvision.datasets import ImageFolder


def load(folder):
    return DataLoader(ImageFolder(folder), batch_size=32, num_workers=4)
""",
    also_bad=(
        """
import torch


class Data:
    def __init__(self, dataset):
        self.dataset = dataset

    def loader(self, batch_size):
        return torch.utils.data.DataLoader(self.dataset, batch_size, True)
""",
        """
from torch.utils import data as tud


def loaders(train, test):
    options = {"batch_size": 8, "pin_memory": False}
    return tud.DataLoader(train, **options)
""",
    ),
    also_good=(
        """
import torch
from torch.utils.data import DataLoader, TensorDataset


def load(x, y):
    dataset = TensorDataset(x, torch.as_tensor(y))
    return DataLoader(dataset, batch_size=32)
""",
        """
from torch.utils.data import DataLoader


def load(dataset, **options):
    return DataLoader(dataset, **options)
""",
    ),
    find=find,
)
