"""drop_last with an iterable dataset: each worker drops a rest of its own."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from ..source.definitions import Dataset, DatasetKind
from ..source.loaders import Loader
from ..source.view import View
from .base import LIKELY, POSSIBLE, WRONG_DATA, Hit, Rule

_ENDLESS = ("itertools.cycle", "itertools.count")


def find(view: View) -> Iterator[Hit]:
    for loader in view.loaders:
        if not loader["drop_last"].is_(True) or not loader.workers.any:
            continue
        batched = not (loader["batch_size"].given and loader["batch_size"].value is None)
        if loader["num_workers"].is_(1) or not batched or not _is_iterable(loader, view):
            continue
        yield Hit(
            loader.node,
            "each worker drops its own last batch of this iterable dataset: up to `num_workers *"
            " (batch_size - 1)` samples are lost in every epoch, or all of a small part",
            LIKELY if loader.dataset is None or _gives_itself(loader.dataset) else POSSIBLE,
        )


def _is_iterable(loader: Loader, view: View) -> bool:
    """Say whether the dataset is iterable, and ends."""
    dataset = loader.dataset
    if dataset is not None:
        return dataset.kind is DatasetKind.ITERABLE and not any(
            _never_ends(node, view) for each in dataset.loading for node in each.nodes()
        )
    made = loader.dataset_expression
    while isinstance(made, ast.Call):  # load_dataset(...).map(...).with_format("torch")
        if view.resolve(made.func) == "datasets.load_dataset":
            return view.call_arguments(made)["streaming"].is_(True)
        if not isinstance(made.func, ast.Attribute) or made.func.attr in ("repeat", "batch"):
            return False
        made = view.value(made.func.value)
    return False


def _gives_itself(dataset: Dataset) -> bool:
    """Say whether we see what gives the samples. An object that `__iter__` asks for all of them
    may be without an end."""
    return dataset.method("__next__") is not None or any(
        each.is_generator for each in dataset.loading
    )


def _never_ends(node: ast.AST, view: View) -> bool:
    match node:
        case ast.While(test=ast.Constant(value=True | 1)):
            return True
        case ast.Call():
            return view.resolve(node.func) in _ENDLESS
        case _:
            return False


RULE = Rule(
    code="AF606",
    name="drop-last-of-an-iterable",
    severity=WRONG_DATA,
    confidence=LIKELY,
    title="Each worker drops its own last batch",
    what="""
    `drop_last=True` for an `IterableDataset` (or a streaming dataset of Hugging Face) in a loader
    with several workers.
    """,
    why="""
    With an iterable dataset each worker makes batches of its own part, and drops its own rest.
    Measured with torch 2.13: of 100 samples, in batches of 16 by 4 workers, 36 are lost, where one
    process loses 4; of 60 samples all 60 are
    ([pytorch#33413](https://github.com/pytorch/pytorch/issues/33413)).
    """,
    instead="""
    Leave `drop_last` out and let the last batches be smaller, or pass over those that are; or use
    one worker; or let the dataset give whole batches, with `batch_size=None`.
    """,
    not_flagged="""
    Map-style datasets, whose batches are made across workers. One worker, `batch_size=None`, and
    datasets that never end.
    """,
    bad="""
from torch.utils.data import DataLoader, IterableDataset, get_worker_info


class Numbers(IterableDataset):
    def __iter__(self):
        worker = get_worker_info()
        yield from range(worker.id, 100, worker.num_workers)


def load():
    return DataLoader(Numbers(), batch_size=16, num_workers=4, drop_last=True)
""",
    good="""
from torch.utils.data import DataLoader, IterableDataset, get_worker_info


class Numbers(IterableDataset):
    def __iter__(self):
        worker = get_worker_info()
        yield from range(worker.id, 100, worker.num_workers)


def load():
    return DataLoader(Numbers(), batch_size=16, num_workers=4)
""",
    also_bad=(
        """
from datasets import load_dataset
from torch.utils.data import DataLoader


def load(cfg, tokenize):
    text = load_dataset(cfg.name, split="train", streaming=True).map(tokenize).with_format("torch")
    options = dict(batch_size=cfg.batch_size, num_workers=cfg.num_workers, drop_last=True)
    return DataLoader(text, **options)
""",
        """
import torch
from torch.utils.data import DataLoader, IterableDataset, get_worker_info


class Shards(IterableDataset):
    def __init__(self, hparams):
        self.paths = hparams.paths

    def __iter__(self):
        worker = get_worker_info()
        for path in self.paths[worker.id :: worker.num_workers]:
            yield from torch.load(path)


class Training:
    def __init__(self, hparams):
        self.hparams = hparams
        self.train_set = Shards(self.hparams)

    def train_dataloader(self):
        workers = self.hparams.num_workers
        return DataLoader(
            self.train_set, self.hparams.batch_size, drop_last=True, num_workers=workers
        )
""",
    ),
    also_good=(
        """
from torch.utils.data import DataLoader, IterableDataset


class Chunks(IterableDataset):
    def __init__(self, task):
        self.task = task

    def __iter__(self):
        return self.task.draw_for_ever()


def load(task):
    return DataLoader(Chunks(task), batch_size=64, num_workers=4, drop_last=True)
""",
        """
import torch
from torch.utils.data import DataLoader, IterableDataset


class Noise(IterableDataset):
    def __iter__(self):
        while True:
            yield torch.randn(3, 32, 32)


def load():
    return DataLoader(Noise(), batch_size=64, num_workers=4, drop_last=True)
""",
        """
from datasets import load_dataset
from torch.utils.data import DataLoader


def load(name):
    text = load_dataset(name, split="train")
    return DataLoader(text, batch_size=16, shuffle=True, num_workers=4, drop_last=True)
""",
    ),
    find=find,
)
